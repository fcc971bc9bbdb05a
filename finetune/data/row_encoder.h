// SPDX-License-Identifier: Apache-2.0
// A parsed row of any type to one sample.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "chat/chat_encoder.h"
#include "chat/mask_options.h"
#include "dataset_spec.h"

namespace bantam {

struct EncodedRow {
  Sample sample;                   ///< id 0, of any length
  size_t bytes_without_token = 0;  ///< of its texts; the vocabulary cannot say them
  ChatNotes notes;                 ///< of chat rows
};

/// Immutable; safe to use from several threads.
class RowEncoder {
 public:
  /// `spec` names its type. `chat_template` may be null: chat rows are refused then (Error(model)), alpaca rows are
  /// written with the prompt that the Alpaca model was trained with.
  RowEncoder(const DatasetSpec& spec, std::shared_ptr<const Tokenizer> tokenizer,
             std::shared_ptr<const ChatTemplate> chat_template, const MaskOptions& mask);

  /// prompt_completion = prompt with the tokenizer's specials, then the completion without, then EOS, completion and
  /// EOS trained; text = text with specials, then EOS, all trained but the first; chat and alpaca: ChatEncoder.
  /// Control-token text inside of a row is plain text. Error(data) names the field; the caller adds file and line.
  EncodedRow encode(const nlohmann::ordered_json& row) const;

 private:
  EncodedRow encode_texts(const nlohmann::ordered_json& row) const;
  EncodedRow encode_chat(const nlohmann::ordered_json& row) const;

  DatasetSpec spec_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  MaskOptions mask_;
  std::optional<ChatEncoder> chat_;
};

}  // namespace bantam
