// SPDX-License-Identifier: Apache-2.0
#include "text_marks.h"

#include <algorithm>
#include <array>

#include "../../text/jinja/unicode.h"
#include "../../text/utf8.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;

// Digits 0..15, then these.
constexpr uint32_t kBegin = 16, kEnd = 17, kControlBegin = 18, kControlEnd = 19, kSize = 32;
constexpr std::array<uint32_t, 4> kBases = {0xFDD0, 0x10FF00, 0xFFF00, 0x10F000};
constexpr int kDigits = 6;

/// Calls f(string) for every string, keys included; stops when f returns true. Values are at most 128 levels deep.
template <class F>
bool any_text(const JinjaValue& value, const F& f) {
  if (value.is(Kind::string)) return f(std::string_view(value.text()));
  if (value.is(Kind::sequence)) {
    for (const JinjaValue& item : value.items())
      if (any_text(item, f)) return true;
  } else if (value.is(Kind::dict)) {
    for (const auto& [key, item] : value.entries())
      if (any_text(key, f) || any_text(item, f)) return true;
  }
  return false;
}

/// The value with every string replaced by f(string); shared where nothing changes.
template <class F>
JinjaValue map_texts(const JinjaValue& value, const F& f, bool keys) {
  if (value.is(Kind::string)) return f(value);
  if (value.is(Kind::sequence)) {
    JinjaValue::List items;
    items.reserve(value.items().size());
    for (const JinjaValue& item : value.items()) items.push_back(map_texts(item, f, keys));
    return JinjaValue::list(std::move(items));
  }
  if (value.is(Kind::dict)) {
    JinjaValue::Entries entries;
    entries.reserve(value.entries().size());
    for (const auto& [key, item] : value.entries())
      entries.emplace_back(keys ? map_texts(key, f, keys) : key, map_texts(item, f, keys));
    return JinjaValue::dict(std::move(entries));
  }
  return value;
}

/// Calls f(segment) for the parts of `text` that are neither <think> tags nor white space around them; for all of it
/// but outer white space where there is no such part.
template <class F>
void each_segment(std::string_view text, const F& f) {
  static constexpr std::string_view kTags[] = {"<think>", "</think>"};
  bool any = false;
  for (size_t from = 0, i = 0;; from = i) {
    size_t tag = 0;
    for (; i < text.size() && tag == 0; i += tag == 0) {
      if (text[i] != '<') continue;
      for (const auto t : kTags)
        if (text.substr(i).starts_with(t)) tag = t.size();
    }
    const auto segment = text_strip(text.substr(from, i - from), std::nullopt, true, true);
    if (!segment.empty()) f(segment);
    any |= !segment.empty();
    if (tag == 0) break;
    i += tag;
  }
  if (any) return;
  const auto whole = text_strip(text, std::nullopt, true, true);
  if (!whole.empty()) f(whole);
}

/// Calls f(value, kind) for each string of a message that can be marked, and gives the message with what f returns.
template <class F>
JinjaValue map_message(const JinjaValue& message, const F& f) {
  if (!message.is(Kind::dict)) return message;
  const auto of = [&](const JinjaValue& v, MarkedKind kind) {
    return map_texts(
        v, [&](const JinjaValue& s) { return f(s, kind); }, false);
  };
  const auto parts = [&](const JinjaValue& content) {  // text, or a list of texts and {"type": "text", "text": ...}
    if (!content.is(Kind::sequence)) return content.is(Kind::string) ? of(content, MarkedKind::content) : content;
    JinjaValue::List items;
    for (const JinjaValue& part : content.items()) {
      if (!part.is(Kind::dict)) {
        items.push_back(part.is(Kind::string) ? of(part, MarkedKind::content) : part);
        continue;
      }
      JinjaValue::Entries entries;
      for (const auto& [key, value] : part.entries()) {
        const bool shown = value.is(Kind::string) && key.is(Kind::string) && key.text() != "type";
        entries.emplace_back(key, shown ? of(value, MarkedKind::content) : value);
      }
      items.push_back(JinjaValue::dict(std::move(entries)));
    }
    return JinjaValue::list(std::move(items));
  };
  const auto call = [&](const JinjaValue& value, const auto& self, int depth) -> JinjaValue {
    if (!value.is(Kind::dict)) return value;
    JinjaValue::Entries entries;
    for (const auto& [key, item] : value.entries()) {
      const std::string_view name = key.is(Kind::string) ? std::string_view(key.text()) : std::string_view();
      if (name == "arguments" || name == "parameters") {
        entries.emplace_back(key, of(item, MarkedKind::arguments));
      } else if (name == "name" && item.is(Kind::string)) {
        entries.emplace_back(key, of(item, MarkedKind::name));
      } else {
        entries.emplace_back(key, name == "function" && depth == 0 ? self(item, self, 1) : item);
      }
    }
    return JinjaValue::dict(std::move(entries));
  };
  JinjaValue::Entries entries;
  entries.reserve(message.entries().size());
  for (const auto& [key, value] : message.entries()) {
    const std::string_view name = key.is(Kind::string) ? std::string_view(key.text()) : std::string_view();
    if (name == "content") {
      entries.emplace_back(key, parts(value));
    } else if (name == "reasoning_content" || name == "reasoning" || name == "thinking" || name == "thought") {
      entries.emplace_back(key, value.is(Kind::string) ? of(value, MarkedKind::reasoning) : value);
    } else if (name == "tool_calls" && value.is(Kind::sequence)) {
      JinjaValue::List calls;
      for (const JinjaValue& item : value.items()) calls.push_back(call(item, call, 0));
      entries.emplace_back(key, JinjaValue::list(std::move(calls)));
    } else {
      entries.emplace_back(key, value);
    }
  }
  return JinjaValue::dict(std::move(entries));
}

}  // namespace

std::optional<MarkAlphabet> MarkAlphabet::unused_in(const Conversation& conversation, std::string_view rendered) {
  std::array<bool, kBases.size()> used{};
  const auto scan = [&](std::string_view text) {
    for (size_t i = ascii_prefix(text); i < text.size();) {
      uint32_t code = 0;
      const size_t n = utf8_sequence(text.substr(i), &code);
      if (n == 0) {
        ++i;
        continue;
      }
      if (code >= kBases[0]) {
        for (size_t b = 0; b < kBases.size(); ++b) used[b] |= code >= kBases[b] && code < kBases[b] + kSize;
      }
      i += n;
    }
    return false;
  };
  scan(rendered);
  any_text(conversation.messages, scan);
  any_text(conversation.tools, scan);
  for (const auto& [key, value] : conversation.variables) any_text(key, scan), any_text(value, scan);
  for (size_t b = 0; b < kBases.size(); ++b)
    if (!used[b]) return MarkAlphabet(kBases[b]);
  return std::nullopt;
}

void MarkAlphabet::append(std::string& out, uint32_t text, bool end) const {
  utf8_append(out, base_ + (end ? kEnd : kBegin));
  for (int d = kDigits - 1; d >= 0; --d) utf8_append(out, base_ + (text >> (4 * d) & 15));
}

void MarkAlphabet::append_control(std::string& out, bool end) const {
  utf8_append(out, base_ + (end ? kControlEnd : kControlBegin));
}

std::optional<MarkAlphabet::Read> MarkAlphabet::read(std::string_view marked, size_t texts) const {
  std::string lead;
  utf8_append(lead, base_);
  const size_t width = lead.size();
  // All 32 share the first byte, which is rare elsewhere.
  const char first = lead[0];
  const auto at = [&](size_t i) -> uint32_t {  // kSize: not one of ours
    uint32_t code = 0;
    if (i >= marked.size() || utf8_sequence(marked.substr(i), &code) != width) return kSize;
    return code >= base_ && code < base_ + kSize ? code - base_ : kSize;
  };
  Read out;
  out.text.reserve(marked.size());
  size_t open = 0, control_begin = 0;
  for (size_t i = 0; i < marked.size();) {
    const size_t next = std::min(marked.find(first, i), marked.size());
    out.text.append(marked.substr(i, next - i));
    if ((i = next) == marked.size()) break;
    const uint32_t sign = at(i);
    if (sign == kSize) {
      out.text.push_back(marked[i++]);
      continue;
    }
    i += width;
    if (sign == kControlBegin || sign == kControlEnd) {
      if ((sign == kControlBegin) != (open == 0)) return std::nullopt;
      open ^= 1;
      if (sign == kControlBegin) {
        control_begin = out.text.size();
      } else if (out.text.size() > control_begin) {
        out.control.push_back({control_begin, out.text.size()});
      }
      continue;
    }
    if (sign != kBegin && sign != kEnd) return std::nullopt;
    Mark mark{0, sign == kEnd, out.text.size()};
    for (int d = 0; d < kDigits; ++d, i += width) {
      const uint32_t digit = at(i);
      if (digit >= 16) return std::nullopt;
      mark.text = mark.text << 4 | digit;
    }
    if (mark.text >= texts) return std::nullopt;
    out.marks.push_back(mark);
  }
  if (open != 0) return std::nullopt;
  return out;
}

MarkedTexts list_marked_texts(const JinjaValue& messages) {
  MarkedTexts out;
  for (size_t i = 0; i < messages.items().size(); ++i) {
    map_message(messages.items()[i], [&](const JinjaValue& value, MarkedKind kind) {
      each_segment(value.text(), [&](std::string_view) {
        out.message.push_back(static_cast<uint32_t>(i));
        out.kind.push_back(kind);
      });
      return value;
    });
  }
  return out;
}

std::vector<std::string_view> marked_texts_of(const JinjaValue& message) {
  std::vector<std::string_view> out;
  map_message(message, [&](const JinjaValue& value, MarkedKind kind) {
    if (kind == MarkedKind::name) return value;
    each_segment(value.text(), [&](std::string_view segment) { out.push_back(segment); });
    return value;
  });
  return out;
}

JinjaValue mark_texts(const JinjaValue& messages, size_t count, size_t first, size_t last, const MarkAlphabet& alphabet,
                      bool names, size_t* texts) {
  uint32_t number = 0;
  JinjaValue::List out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const bool write = i >= first && i < last;
    const JinjaValue& message = messages.items()[i];
    JinjaValue marked = map_message(message, [&](const JinjaValue& value, MarkedKind kind) {
      const std::string_view text = value.text();
      std::string written;
      size_t done = 0;
      each_segment(text, [&](std::string_view segment) {
        const auto begin = static_cast<size_t>(segment.data() - text.data());
        if (write && (names || kind != MarkedKind::name)) {
          written.append(text.substr(done, begin - done));
          alphabet.append(written, number, false);
          written.append(segment);
          alphabet.append(written, number, true);
          done = begin + segment.size();
        }
        ++number;
      });
      if (!write || done == 0) return value;
      written.append(text.substr(done));
      return JinjaValue(std::move(written));
    });
    out.push_back(write ? std::move(marked) : message);
  }
  if (texts != nullptr) *texts = number;
  return JinjaValue::list(std::move(out));
}

bool has_control_text(const JinjaValue& value, const ControlText& control) {
  return any_text(value, [&](std::string_view text) { return control.in(text); });
}

JinjaValue mark_control_text(const JinjaValue& value, const ControlText& control, const MarkAlphabet& alphabet) {
  return map_texts(
      value,
      [&](const JinjaValue& text) {
        const auto spans = control.find(text.text());
        if (spans.empty()) return text;
        std::string out;
        size_t done = 0;
        for (const TextSpan span : spans) {
          out.append(text.text(), done, span.begin - done);
          alphabet.append_control(out, false);
          out.append(text.text(), span.begin, span.end - span.begin);
          alphabet.append_control(out, true);
          done = span.end;
        }
        out.append(text.text(), done);
        return JinjaValue(std::move(out));
      },
      true);
}

}  // namespace bantam
