// SPDX-License-Identifier: Apache-2.0
#include "conversation_content.h"

#include <algorithm>
#include <span>

#include "conversation_json.h"
#include "conversation_tools.h"

namespace bantam {
namespace {

constexpr std::string_view kText[] = {"text", "input_text", "output_text"};
constexpr std::string_view kMedia[] = {"image",     "image_url",   "input_image",  "image_embeds", "audio",
                                       "audio_url", "input_audio", "audio_embeds", "video",        "video_url",
                                       "file",      "input_file",  "document"};

bool one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const std::string& text_of(const JinjaValue& part, std::initializer_list<std::string_view> keys, const RowPath& path) {
  for (const std::string_view key : keys) {
    const JinjaValue* v = find_value(part, key);
    if (v == nullptr) continue;
    if (!is_text(*v)) row_fault_kind(RowPath(path, key), "text", *v);
    return v->text();
  }
  row_fault(path, str("expected ", *keys.begin(), ", found ", keys_text(part)));
}

// The result of a tool may be a list of anything, also of things that have a type.
bool all_parts(const JinjaValue::List& items) {
  return !items.empty() && std::all_of(items.begin(), items.end(), [](const JinjaValue& item) {
    const JinjaValue* type = is_object(item) ? find_value(item, "type") : nullptr;
    return type != nullptr && is_text(*type) && (one_of(type->text(), kText) || one_of(type->text(), kMedia));
  });
}

// Text parts, in the order of the message.
class Parts {
 public:
  explicit Parts(MessageContent& out) : out_(out) {}

  void add(const JinjaValue& part, const RowPath& path) {
    if (is_text(part)) return add_text(part.text(), false);
    if (!is_object(part)) row_fault_kind(path, "a part such as {\"type\": \"text\", \"text\": ...}", part);
    const JinjaValue* type = find_value(part, "type");
    if (type == nullptr) row_fault(path, str("expected a part with a type, found ", keys_text(part)));
    if (!is_text(*type)) row_fault_kind(RowPath(path, "type"), "text", *type);
    const std::string& name = type->text();
    const bool value = find_value(part, "value") != nullptr;  // LLaMA-Factory's parts
    if (one_of(name, kText)) {
      add_text(text_of(part, {"text", "value"}, path), value);
    } else if (name == "reasoning" || name == "thinking") {
      out_.reasoning += text_of(part, {name, "value", "text"}, path);
      out_.has_reasoning = true;
    } else if (name == "tool_call") {
      const JinjaValue* call = find_value(part, value ? "value" : "tool_call");
      if (call == nullptr) row_fault(path, str("expected value, found ", keys_text(part)));
      append_tool_calls(*call, RowPath(path, value ? "value" : "tool_call"), out_.tool_calls);
    } else if (one_of(name, kMedia)) {
      row_fault(path, str("a part of type ", name, ": only text can be trained on"),
                "take such rows out, or replace the part by text");
    } else {
      row_fault(path, str("a part of type '", printable(name, 40), "', known are text, reasoning, tool_call"));
    }
  }

  // vLLM and llama.cpp join parts by a line break where the template wants one text; LLaMA-Factory's follow each other.
  void finish(bool one_text) {
    if (texts_.empty()) return;
    if (texts_.size() == 1 || one_text || glued_) {
      std::string all;
      for (size_t i = 0; i < texts_.size(); ++i) {
        if (i > 0 && !glued_) all += '\n';
        all += texts_[i];
      }
      out_.value = JinjaValue(std::move(all));
      return;
    }
    JinjaValue::List list;
    list.reserve(texts_.size());
    for (const auto text : texts_) list.push_back(JinjaValue::dict({{"type", "text"}, {"text", text}}));
    out_.value = JinjaValue::list(std::move(list));
  }

 private:
  void add_text(std::string_view text, bool glued) {
    texts_.push_back(text);
    glued_ = glued_ || glued;
  }

  MessageContent& out_;
  std::vector<std::string_view> texts_;
  bool glued_ = false;
};

}  // namespace

MessageContent read_content(const JinjaValue& content, bool tool, const RowPath& path) {
  MessageContent out;
  if (is_text(content)) {
    out.value = content;
  } else if (is_null(content)) {
    return out;
  } else if (is_list(content) && (!tool || all_parts(content.items()))) {
    Parts parts(out);
    size_t i = 0;
    for (const auto& part : content.items()) parts.add(part, RowPath(path, i++));
    parts.finish(tool);
  } else if (tool) {
    out.value = json_dumps(content);
  } else {
    row_fault_kind(path, "text", content);
  }
  return out;
}

}  // namespace bantam
