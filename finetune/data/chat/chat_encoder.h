// SPDX-License-Identifier: Apache-2.0
// A conversation through the model's template to token ids, and which of them are trained.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../text/chat_template.h"
#include "../../text/tokenizer.h"
#include "../samples/sample.h"
#include "answer_spans.h"
#include "conversation.h"
#include "mask_options.h"

namespace bantam {

/// What is worth a line in a report; added up over rows.
struct ChatNotes {
  /// Answers whose prompt, encoded alone as when it is served, has other tokens at its end: text of the answer joins
  /// its last token (which is trained then, as it holds bytes of the answer).
  int64_t joined_prompts = 0;
  int64_t control_texts = 0;  ///< texts of control tokens in messages and tools, encoded as plain text
};

/// What the template writes behind an answer, by which the model learns to stop.
struct EndOfTurn {
  std::string text;          ///< without outer white space; empty: nothing
  std::vector<int32_t> ids;  ///< the first control token of it; without one, all of its tokens
};

/// Immutable; safe to use from several threads.
class ChatEncoder {
 public:
  /// Tries the template out on a few conversations.
  ChatEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template,
              MaskOptions options = {});

  /// The rendered conversation, encoded without automatic specials (a BOS is there where the template writes it),
  /// control tokens only where the template wrote them. A token is trained when it holds a byte of a trained span; the
  /// weight of its turn is the token's. Error(data): the template refuses the conversation (its message), or the
  /// trained spans cannot be found or would be empty; see AnswerSpans::render. The sample's id is 0.
  Sample encode(const Conversation& conversation, ChatNotes* notes = nullptr) const;

  /// Ids of the prompt that the model is asked with after these messages, encoded as the messages are in training.
  std::vector<int32_t> encode_prompt(const Conversation& conversation) const;

  /// Of the answer to one question; none: the template refuses it. More than one id: the text is no token of the
  /// vocabulary, and the model has to say them all.
  std::optional<EndOfTurn> end_of_turn() const;

  /// The text that is encoded, with what is trained of it.
  AnsweredText text(const Conversation& conversation) const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace bantam
