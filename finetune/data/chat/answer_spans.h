// SPDX-License-Identifier: Apache-2.0
// Which bytes of a rendered conversation are trained: from the template's {% generation %} tags where it has them, else
// from renderings of the conversation's parts, verified.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "../../text/chat_template.h"
#include "../../text/tokenizer.h"
#include "conversation.h"
#include "mask_options.h"

namespace bantam {

struct TrainedSpan {
  TextSpan bytes;
  uint32_t turn = 0;
  float weight = 1;
  bool operator==(const TrainedSpan&) const = default;
};

struct AnsweredText {
  std::string text;                  ///< the conversation as the template writes it
  std::vector<TrainedSpan> trained;  ///< in order, without overlaps, none empty
  std::vector<TextSpan> plain;       ///< texts of control tokens that the messages (not the template) have; in order
};

/// An answer's span starts where the prompt ends that the model is served with (the template's rendering of the
/// messages before it, with add_generation_prompt) and ends with what the template writes after the answer: its
/// end-of-turn marker and the line end behind it, as the {% generation %} tags of published training templates have it.
/// Spans of other roles are their content and the marker.
///
/// Where the template has tags, they are the answers' spans, and every trained answer needs one; a marker right behind
/// them is taken in. Without tags, or where they give nothing: the prompt, and the rendering up to the answer, are
/// compared with the whole; where the template rewrites earlier turns, the places are found by marks in the messages'
/// texts. A turn whose text the template leaves out has what is left of it as its span, or none. Immutable; safe to use
/// from several threads.
class AnswerSpans {
 public:
  /// `control_tokens`: the texts that become control tokens. `eos`: text of the end-of-text token; may be empty.
  AnswerSpans(std::shared_ptr<const ChatTemplate> chat_template, std::vector<std::string> control_tokens,
              std::string eos, MaskOptions options = {});

  /// `trained` is empty only where each turn that roles_to_train names is switched off by its own train or weight.
  /// Error(data): the template refuses the conversation; no turn has a role to train; a turn is not found, with the
  /// number of the message; everything would be trained without train_on_inputs.
  AnsweredText render(const Conversation& conversation) const;
  /// The text that the model is asked with after these messages; nothing of it is trained. Error(data): the template
  /// refuses them.
  AnsweredText prompt(const Conversation& conversation) const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace bantam
