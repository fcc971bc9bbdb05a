// SPDX-License-Identifier: Apache-2.0
#include "row_encoder.h"

#include <nlohmann/json.hpp>

#include "../../kernels/error.h"
#include "../text/json_file.h"
#include "../text/utf8.h"

namespace bantam {
namespace {

const std::string& text_field(const nlohmann::ordered_json& row, const std::string& field) {
  const auto it = row.find(field);
  if (it == row.end()) {
    std::string found;
    for (const auto& [key, value] : row.items()) {
      if (found.size() > 200) {
        found += ", ...";
        break;
      }
      found += (found.empty() ? "" : ", ") + printable(key, 60);
    }
    throw Error(
        ErrorCode::data, str("no field '", field, "' (found: ", found.empty() ? "none" : found, ")"),
        "name the row's field with field_prompt, field_completion or field_text, or choose another dataset type");
  }
  if (!it->is_string()) throw Error(ErrorCode::data, str(field, ": expected text, found ", it->type_name()));
  return it->get_ref<const std::string&>();
}

}  // namespace

RowEncoder::RowEncoder(const DatasetSpec& spec, std::shared_ptr<const Tokenizer> tokenizer,
                       std::shared_ptr<const ChatTemplate> chat_template, const MaskOptions& mask)
    : spec_(spec), tokenizer_(std::move(tokenizer)), mask_(mask) {
  if (spec.type == DatasetType::automatic) throw Error(ErrorCode::internal, "a dataset without a type");
  if (spec.type == DatasetType::chat || spec.type == DatasetType::alpaca) {
    if (!chat_template && spec.type == DatasetType::chat) {
      throw Error(ErrorCode::model, str(spec.path, ": chat rows, and the model has no chat template"),
                  "name one with chat_template, e.g. chat_template: chatml");
    }
    if (!chat_template) chat_template = std::make_shared<ChatTemplate>(ChatTemplate::named("alpaca", *tokenizer_));
    chat_.emplace(tokenizer_, std::move(chat_template), mask);
  } else if (tokenizer_->eos_id() < 0) {
    throw Error(ErrorCode::model, "the tokenizer has no EOS token, which ends every row",
                "name eos_token in tokenizer_config.json");
  }
}

EncodedRow RowEncoder::encode(const nlohmann::ordered_json& row) const {
  return chat_ ? encode_chat(row) : encode_texts(row);
}

EncodedRow RowEncoder::encode_texts(const nlohmann::ordered_json& row) const {
  EncodedRow out;
  Sample& s = out.sample;
  const auto append = [&](const std::vector<int32_t>& ids, bool trained) {
    s.ids.insert(s.ids.end(), ids.begin(), ids.end());
    s.trained.resize(s.ids.size(), trained ? 1 : 0);
  };
  const auto encode_field = [&](const std::string& field, bool special) {
    const std::string& value = text_field(row, field);
    out.bytes_without_token += tokenizer_->unencodable(value);
    try {
      auto ids = tokenizer_->encode(value, {.add_special = special, .parse_special = false});
      // EOS ends the row, not the prompt; it is added once, below.
      if (special && tokenizer_->adds_eos() && !ids.empty() && ids.back() == tokenizer_->eos_id()) ids.pop_back();
      return ids;
    } catch (const Error& e) {
      throw Error(e.code(), str(field, ": ", e.what()), e.hint());
    }
  };
  if (spec_.type == DatasetType::text) {
    append(encode_field(spec_.field_text, true), true);
  } else {
    append(encode_field(spec_.field_prompt, true), mask_.train_on_inputs);
    append(encode_field(spec_.field_completion, false), true);
  }
  append({tokenizer_->eos_id()}, true);
  s.trained[0] = 0;  // nothing stands before it
  return out;
}

EncodedRow RowEncoder::encode_chat(const nlohmann::ordered_json& row) const {
  const Conversation c = spec_.type == DatasetType::alpaca ? read_alpaca(row, spec_) : read_chat(row, spec_);
  EncodedRow out;
  try {
    out.sample = chat_->encode(c, &out.notes);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::data || !e.hint().empty()) throw;
    throw Error(e.code(), e.what(),
                "the chat template cannot write this conversation: name another one with chat_template, or take such "
                "rows out (max_malformed_rows leaves out and reports a number of them)");
  }
  for (const JinjaValue& message : c.messages.items()) {
    const JinjaValue* content = message.find("content");
    if (content && content->is(JinjaValue::Kind::string))
      out.bytes_without_token += tokenizer_->unencodable(content->text());
  }
  return out;
}

}  // namespace bantam
