// SPDX-License-Identifier: Apache-2.0
// Values as text: str, repr and json.dumps.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "ops.h"
#include "unicode.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;

void append_hex(std::string& out, const char* prefix, uint32_t code, int digits) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out.push_back(kHex[code >> shift & 15]);
}

// Namespaces may hold each other, so that the levels of a value say nothing about them.
void repr(std::string& out, const JinjaValue& v, JinjaWork& work, int level);

void repr_items(std::string& out, const JinjaValue::List& items, JinjaWork& work, int level) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    repr(out, items[i], work, level + 1);
  }
}

void repr_sequence(std::string& out, const JinjaValue& v, JinjaWork& work, int level) {
  const auto& s = as_sequence(v);
  switch (s.kind) {
    case SequenceKind::list:
      out.push_back('[');
      repr_items(out, s.items, work, level);
      out.push_back(']');
      return;
    case SequenceKind::tuple:
      out.push_back('(');
      repr_items(out, s.items, work, level);
      out += s.items.size() == 1 ? ",)" : ")";
      return;
    case SequenceKind::range:
      out += str("range(", s.start, ", ", s.stop);
      out += s.step == 1 ? ")" : str(", ", s.step, ")");
      return;
    case SequenceKind::iterator:
      jinja_unsupported("printing an iterator is not supported: add | list");
    default:
      out += str(jinja_type(v), "([");
      repr_items(out, s.items, work, level);
      out += "])";
  }
}

void repr(std::string& out, const JinjaValue& v, JinjaWork& work, int level) {
  work.charge(1);
  if (level > 2 * kJinjaMostLevels) jinja_data_fault("values nested too deep to print");
  switch (v.kind()) {
    case Kind::missing:
    case Kind::undefined:
      out += "Undefined";
      return;
    case Kind::none:
      out += "None";
      return;
    case Kind::boolean:
      out += v.boolean() ? "True" : "False";
      return;
    case Kind::integer:
      out += std::to_string(v.integer());
      return;
    case Kind::real:
      out += python_float(v.real());
      return;
    case Kind::string:
      work.charge_text(v.text().size(), out.size());
      work.charge(v.text().size() / 4);
      out += is_markup(v) ? "Markup(" + python_repr(v.text()) + ")" : python_repr(v.text());
      return;
    case Kind::sequence:
      return repr_sequence(out, v, work, level);
    case Kind::dict: {
      out.push_back('{');
      bool first = true;
      for (const auto& [key, value] : v.entries()) {
        if (!first) out += ", ";
        first = false;
        repr(out, key, work, level + 1);
        out += ": ";
        repr(out, value, work, level + 1);
      }
      out.push_back('}');
      return;
    }
    case Kind::name_space: {
      const auto& attributes = static_cast<const JinjaNamespace&>(*v.object()).attributes;
      out += "<Namespace {";
      for (size_t i = 0; i < attributes.size(); ++i) {
        out += (i > 0 ? ", " : "") + python_repr(attributes[i].first) + ": ";
        repr(out, attributes[i].second, work, level + 1);
      }
      out += "}>";
      return;
    }
    case Kind::loop:
      jinja_unsupported("printing loop is not supported");
    case Kind::callable:
      jinja_unsupported("printing a function is not supported: is it meant to be called?");
  }
}

void json_string(std::string& out, std::string_view s, bool ensure_ascii) {
  out.push_back('"');
  for (size_t i = 0, n = 0; i < s.size(); i += n) {
    const uint32_t code = text_code(s.substr(i), n);
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const size_t at = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kLetters[at]);
    } else if (code < 0x20 || (ensure_ascii && code >= 0x7F && code < 0x10000)) {
      append_hex(out, "\\u", code, 4);
    } else if (ensure_ascii && code >= 0x10000 && code < 0x110000) {
      append_hex(out, "\\u", 0xD800 + ((code - 0x10000) >> 10), 4);
      append_hex(out, "\\u", 0xDC00 + ((code - 0x10000) & 0x3FF), 4);
    } else {
      out.append(s.substr(i, n));
    }
  }
  out.push_back('"');
}

class JsonWriter {
 public:
  JsonWriter(const JsonDump& options, JinjaWork& work) : options_(options), work_(work) {}

  void write(const JinjaValue& v, int level) {
    work_.charge(1);
    switch (v.kind()) {
      case Kind::none:
        out_ += "null";
        return;
      case Kind::boolean:
        out_ += v.boolean() ? "true" : "false";
        return;
      case Kind::integer:
        out_ += std::to_string(v.integer());
        return;
      case Kind::real:
        out_ += number(v.real());
        return;
      case Kind::string:
        work_.charge_text(v.text().size(), out_.size());
        work_.charge(v.text().size() / 8);
        return json_string(out_, v.text(), options_.ensure_ascii);
      case Kind::dict:
        return write_dict(v, level);
      case Kind::sequence:
        if (is_sequence_of(v, SequenceKind::list) || is_sequence_of(v, SequenceKind::tuple)) {
          return write_list(v.items(), level);
        }
        [[fallthrough]];
      default:
        jinja_data_fault(str("Object of type ", jinja_type(v), " is not JSON serializable"));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return python_float(d);
  }

  void line(int level) {
    if (!options_.pretty) return;
    work_.charge_text(options_.indent.size() * static_cast<size_t>(level), out_.size());
    out_.push_back('\n');
    for (int i = 0; i < level; ++i) out_ += options_.indent;
  }

  void write_list(const JinjaValue::List& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      line(level + 1);
      write(items[i], level + 1);
    }
    line(level);
    out_.push_back(']');
  }

  std::string key_text(const JinjaValue& key) {
    switch (key.kind()) {
      case Kind::string:
        return key.text();
      case Kind::none:
        return "null";
      case Kind::boolean:
        return key.boolean() ? "true" : "false";
      case Kind::integer:
        return std::to_string(key.integer());
      case Kind::real:
        return number(key.real());
      default:
        jinja_data_fault(str("keys must be str, int, float, bool or None, not ", jinja_type(key)));
    }
  }

  void write_dict(const JinjaValue& v, int level) {
    if (v.entries().empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<JinjaValue, JinjaValue>*> order;
    for (const auto& entry : v.entries()) order.push_back(&entry);
    if (options_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
        return jinja_compare(JinjaComparison::less, a->first, b->first, work_);
      });
    }
    out_.push_back('{');
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      line(level + 1);
      json_string(out_, key_text(order[i]->first), options_.ensure_ascii);
      out_ += options_.key_separator;
      write(order[i]->second, level + 1);
    }
    line(level);
    out_.push_back('}');
  }

  const JsonDump& options_;
  JinjaWork& work_;
  std::string out_;
};

}  // namespace

std::string python_float(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t sign = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + sign, end, exponent);
  std::string out, digits;
  if (text[0] == '-') out = "-";
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits.push_back(c);
  if (exponent < -4 || exponent >= 16) {
    out.push_back(digits[0]);
    if (digits.size() > 1) out += "." + digits.substr(1);
    const int size = std::abs(exponent);
    return out + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent + 1);
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string python_repr(std::string_view s) {
  const bool single = s.find('\'') == std::string_view::npos || s.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (size_t i = 0, n = 0; i < s.size(); i += n) {
    const uint32_t code = text_code(s.substr(i), n);
    if (code == static_cast<uint32_t>(quote) || code == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(code));
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (is_python_printable(code)) {
      out.append(s.substr(i, n));
    } else if (code >= 0x110000) {  // a byte that is no UTF-8, as Python's surrogateescape has it
      append_hex(out, "\\udc", code & 0xFF, 2);
    } else if (code < 0x100) {
      append_hex(out, "\\x", code, 2);
    } else {
      append_hex(out, code < 0x10000 ? "\\u" : "\\U", code, code < 0x10000 ? 4 : 8);
    }
  }
  out.push_back(quote);
  return out;
}

void jinja_append_repr(std::string& out, const JinjaValue& v, JinjaWork& work) {
  repr(out, v, work, 0);
  work.charge_text(out.size());
}

void jinja_append_str(std::string& out, const JinjaValue& v, JinjaWork& work) {
  if (v.is(Kind::undefined)) return;
  if (v.is(Kind::string)) {
    work.charge_text(v.text().size(), out.size());
    out += v.text();
    return;
  }
  repr(out, v, work, 0);
}

std::string jinja_str(const JinjaValue& v, JinjaWork& work) {
  std::string out;
  jinja_append_str(out, v, work);
  return out;
}

std::string jinja_to_json(const JinjaValue& v, const JsonDump& options, JinjaWork& work) {
  JsonWriter writer(options, work);
  writer.write(v, 0);
  return writer.take();
}

std::string json_dumps(const JinjaValue& value) {
  JinjaWork work;
  work.max_steps = work.steps_left = uint64_t{1} << 62;
  work.max_text_bytes = size_t{1} << 62;
  return jinja_to_json(value, {}, work);
}

}  // namespace bantam
