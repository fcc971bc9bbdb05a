// SPDX-License-Identifier: Apache-2.0
// A conversation through the model's template to token ids, and which of them are trained.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "../text/chat_template.h"
#include "../text/tokenizer.h"
#include "conversation.h"
#include "mask_options.h"
#include "sample.h"

namespace bantam {

/// Immutable; safe to use from several threads.
class ChatEncoder {
 public:
  /// Error(model) where the template cannot be used for training.
  ChatEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template,
              MaskOptions options = {});

  /// The rendered conversation, encoded without automatic specials, control tokens only where the template wrote them.
  /// Error(data): the template refuses the conversation (its message), or the trained spans cannot be found or would be
  /// empty. The sample's id is 0.
  Sample encode(const Conversation& conversation) const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace bantam
