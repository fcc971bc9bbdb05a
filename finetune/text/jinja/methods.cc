// SPDX-License-Identifier: Apache-2.0
#include "methods.h"

#include <algorithm>
#include <optional>

#include "ops.h"
#include "unicode.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;

struct Call {
  const JinjaValue& self;
  std::string_view name;
  JinjaArguments& arguments;
  JinjaWork& work;

  const std::string& text() const { return self.text(); }
  JinjaValue made(std::string_view s) const { return jinja_markup(std::string(s), is_markup(self)); }
  JinjaValue::List bind(const std::vector<std::string_view>& parameters) const {
    return jinja_bind(name, arguments, parameters);
  }
};

bool absent(const JinjaValue& v) {
  return v.is(Kind::missing) || v.is(Kind::none);
}

// A text; none and missing where `optional`.
std::optional<std::string_view> text_argument(const Call& c, const JinjaValue& v, bool optional) {
  if (optional && absent(v)) return std::nullopt;
  if (v.is(Kind::undefined)) jinja_fail_undefined(v);
  if (!v.is(Kind::string)) {
    jinja_data_fault(str(c.name, " arg must be ", optional ? "None or str" : "str", ", not ",
                         v.is(Kind::missing) ? "missing" : jinja_type(v)));
  }
  return v.text();
}

int64_t integer_argument(const JinjaValue& v, int64_t otherwise) {
  if (v.is(Kind::missing)) return otherwise;
  if (v.is(Kind::boolean)) return v.boolean();
  if (!v.is(Kind::integer)) {
    jinja_data_fault(str("'", jinja_type(v), "' object cannot be interpreted as an integer"));
  }
  return v.integer();
}

JinjaValue list_of(const Call& c, const std::vector<std::string_view>& parts) {
  c.work.charge(4 * parts.size());
  JinjaValue::List out;
  out.reserve(parts.size());
  for (const auto part : parts) out.push_back(c.made(part));
  return JinjaValue::list(std::move(out));
}

JinjaValue split(const Call& c) {
  const auto a = c.bind({"sep", "maxsplit"});
  const auto separator = text_argument(c, a[0], true);
  if (separator && separator->empty()) jinja_data_fault("empty separator");
  const bool from_right = c.name == "rsplit";
  c.work.charge(c.text().size() / 4);
  if (from_right && separator) c.work.charge(c.text().size() * separator->size() / 16);
  return list_of(c, text_split(c.text(), separator, integer_argument(a[1], -1), from_right));
}

JinjaValue strip(const Call& c) {
  const auto a = c.bind({"chars"});
  const auto chars = text_argument(c, a[0], true);
  c.work.charge(c.text().size() * (chars ? chars->size() + 1 : 1) / 4);
  return c.made(text_strip(c.text(), chars, c.name != "rstrip", c.name != "lstrip"));
}

JinjaValue starts_or_ends(const Call& c) {
  if (c.arguments.positional.size() > 1) jinja_unsupported(str(c.name, " with a start is not supported"));
  const auto a = c.bind({"prefix"});
  const auto one = [&](const JinjaValue& v) {
    const std::string_view s = *text_argument(c, v, false), text = c.text();
    c.work.charge(s.size() / 64);
    return c.name == "startswith" ? text.starts_with(s) : text.ends_with(s);
  };
  if (!is_sequence_of(a[0], SequenceKind::tuple)) {
    if (a[0].is(Kind::undefined)) jinja_fail_undefined(a[0]);
    if (!a[0].is(Kind::string)) {
      jinja_data_fault(str(c.name, " first arg must be str or a tuple of str, not ", jinja_type(a[0])));
    }
    return one(a[0]);
  }
  return std::any_of(a[0].items().begin(), a[0].items().end(), one);
}

JinjaValue replace(const Call& c) {
  const auto a = c.bind({"old", "new", "count"});
  const auto what = *text_argument(c, a[0], false);
  const auto by = *text_argument(c, a[1], false);
  const std::string escaped = is_markup(c.self) && !is_markup(a[1]) ? html_escape(by) : std::string(by);
  c.work.charge_text(c.text().size());
  c.work.charge(c.text().size() / 2);
  const auto times = static_cast<size_t>(text_count(c.text(), what));
  c.work.charge_text(c.text().size() + times * escaped.size());
  return c.made(text_replace(c.text(), what, escaped, integer_argument(a[2], -1)));
}

JinjaValue with_case(const Call& c) {
  c.bind({});
  c.work.charge_text(3 * c.text().size());
  c.work.charge(c.text().size());
  const auto f = c.name == "lower"   ? text_lower
                 : c.name == "upper" ? text_upper
                 : c.name == "title" ? text_title
                                     : text_capitalize;
  return c.made(f(c.text()));
}

JinjaValue join(const Call& c) {
  const auto a = c.bind({"iterable"});
  if (!jinja_iterable(a[0])) jinja_data_fault("can only join an iterable");
  std::string out;
  size_t i = 0;
  for (const auto& item : jinja_iterate(a[0], c.work)) {
    if (i > 0) out += c.text();
    if (!item.is(Kind::string) && !is_markup(c.self)) {
      jinja_data_fault(str("sequence item ", i, ": expected str instance, ", jinja_type(item), " found"));
    }
    out += is_markup(c.self) && !is_markup(item) ? html_escape(jinja_str(item, c.work)) : item.text();
    ++i;
    if (out.size() > c.work.max_text_bytes) c.work.charge_text(out.size());
  }
  c.work.charge_text(out.size());
  return c.made(out);
}

JinjaValue find_or_count(const Call& c) {
  if (c.arguments.positional.size() > 1) jinja_unsupported(str(c.name, " with a start is not supported"));
  const auto a = c.bind({"sub"});
  const auto what = *text_argument(c, a[0], false);
  c.work.charge(c.text().size() / 4);
  if (c.name == "count") return text_count(c.text(), what);
  const size_t at = c.name == "find" ? text_find(c.text(), what) : c.text().rfind(what);
  if (c.name == "rfind") c.work.charge(c.text().size() * what.size() / 16);
  return at == std::string::npos ? int64_t{-1} : text_length(std::string_view(c.text()).substr(0, at));
}

JinjaValue remove_affix(const Call& c) {
  const auto a = c.bind({"affix"});
  const auto affix = *text_argument(c, a[0], false);
  std::string_view s = c.text();
  c.work.charge(s.size() / 64);
  if (c.name == "removeprefix" && s.starts_with(affix)) s.remove_prefix(affix.size());
  if (c.name == "removesuffix" && s.ends_with(affix)) s.remove_suffix(affix.size());
  return c.made(s);
}

JinjaValue split_lines(const Call& c) {
  const auto a = c.bind({"keepends"});
  c.work.charge(c.text().size() / 4);
  return list_of(c, text_splitlines(c.text(), jinja_truth(a[0])));
}

JinjaValue get(const Call& c) {
  const auto a = c.bind({"key", "default"});
  if (a[0].is(Kind::missing)) jinja_data_fault("get expected at least 1 argument, got 0");
  if (a[0].is(Kind::dict) || is_sequence_of(a[0], SequenceKind::list)) {
    jinja_data_fault(str("unhashable type: '", jinja_type(a[0]), "'"));
  }
  if (a[0].is(Kind::string)) {
    if (const auto* found = c.self.find(a[0].text())) return *found;
  } else {
    c.work.charge(c.self.entries().size());
    for (const auto& [key, value] : c.self.entries())
      if (jinja_same_key(key, a[0])) return value;
  }
  return a[1].is(Kind::missing) ? JinjaValue() : a[1];
}

JinjaValue view(const Call& c) {
  c.bind({});
  c.work.charge(2 * c.self.entries().size());
  JinjaValue::List out;
  out.reserve(c.self.entries().size());
  for (const auto& [key, value] : c.self.entries()) {
    if (c.name == "items") {
      out.push_back(jinja_sequence(SequenceKind::tuple, {key, value}));
    } else {
      out.push_back(c.name == "keys" ? key : value);
    }
  }
  return jinja_sequence(c.name == "items"  ? SequenceKind::items
                        : c.name == "keys" ? SequenceKind::keys
                                           : SequenceKind::values,
                        std::move(out));
}

struct Method {
  std::string_view name;
  JinjaValue (*call)(const Call&);
};
constexpr Method kTextMethods[] = {
    {"split", split},
    {"strip", strip},
    {"lstrip", strip},
    {"rstrip", strip},
    {"startswith", starts_or_ends},
    {"endswith", starts_or_ends},
    {"replace", replace},
    {"lower", with_case},
    {"upper", with_case},
    {"title", with_case},
    {"capitalize", with_case},
    {"join", join},
    {"rsplit", split},
    {"splitlines", split_lines},
    {"find", find_or_count},
    {"rfind", find_or_count},
    {"count", find_or_count},
    {"removeprefix", remove_affix},
    {"removesuffix", remove_affix},
};
constexpr Method kDictMethods[] = {{"get", get}, {"items", view}, {"keys", view}, {"values", view}};

// What else Python has.
constexpr std::string_view kTextUnsupported[] = {
    "casefold",  "center",      "encode",  "expandtabs", "format",   "format_map",   "index",
    "isalnum",   "isalpha",     "isascii", "isdecimal",  "isdigit",  "isidentifier", "islower",
    "isnumeric", "isprintable", "isspace", "istitle",    "isupper",  "ljust",        "maketrans",
    "partition", "rindex",      "rjust",   "rpartition", "swapcase", "translate",    "zfill"};
constexpr std::string_view kMarkupUnsupported[] = {"escape", "unescape", "striptags"};
constexpr std::string_view kListUnsafe[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view kListUnsupported[] = {"copy", "count", "index"};
constexpr std::string_view kDictUnsafe[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kDictUnsupported[] = {"copy", "fromkeys"};
constexpr std::string_view kRangeUnsupported[] = {"count", "index", "start", "stop", "step"};
constexpr std::string_view kViewUnsupported[] = {"isdisjoint", "mapping"};
constexpr std::string_view kIteratorUnsupported[] = {"close",        "gi_code", "gi_frame", "gi_running",
                                                     "gi_yieldfrom", "send",    "throw"};
constexpr std::string_view kNumberUnsupported[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
    "is_integer",       "numerator", "real",       "to_bytes"};
constexpr std::string_view kFloatOnly[] = {"fromhex", "hex", "is_integer"};
constexpr std::string_view kIntOnly[] = {"bit_count",  "bit_length", "denominator",
                                         "from_bytes", "numerator",  "to_bytes"};
constexpr std::string_view kMacroUnsupported[] = {"arguments",     "caller",          "catch_kwargs",
                                                  "catch_varargs", "explicit_caller", "name"};

template <size_t n>
bool among(const std::string_view (&list)[n], std::string_view& name) {
  const auto* it = std::find(std::begin(list), std::end(list), name);
  if (it == std::end(list)) return false;
  name = *it;
  return true;
}

template <size_t n>
const Method* method(const Method (&list)[n], std::string_view name) {
  for (const auto& m : list)
    if (m.name == name) return &m;
  return nullptr;
}

}  // namespace

MethodKind jinja_find_method(const JinjaValue& receiver, std::string_view& name) {
  const Method* found = nullptr;
  switch (receiver.kind()) {
    case Kind::string:
      found = method(kTextMethods, name);
      if (found == nullptr &&
          (among(kTextUnsupported, name) || (is_markup(receiver) && among(kMarkupUnsupported, name)))) {
        return MethodKind::unsupported;
      }
      break;
    case Kind::dict:
      found = method(kDictMethods, name);
      if (among(kDictUnsafe, name)) return MethodKind::unsafe;
      if (among(kDictUnsupported, name)) return MethodKind::unsupported;
      break;
    case Kind::sequence:
      switch (as_sequence(receiver).kind) {
        case SequenceKind::list:
          if (among(kListUnsafe, name)) return MethodKind::unsafe;
          return among(kListUnsupported, name) ? MethodKind::unsupported : MethodKind::none;
        case SequenceKind::tuple:
          return name != "copy" && among(kListUnsupported, name) ? MethodKind::unsupported : MethodKind::none;
        case SequenceKind::range:
          return among(kRangeUnsupported, name) ? MethodKind::unsupported : MethodKind::none;
        case SequenceKind::iterator:
          return among(kIteratorUnsupported, name) ? MethodKind::unsupported : MethodKind::none;
        default:
          return among(kViewUnsupported, name) ? MethodKind::unsupported : MethodKind::none;
      }
    case Kind::boolean:
    case Kind::integer:
      return !among(kFloatOnly, name) && among(kNumberUnsupported, name) ? MethodKind::unsupported : MethodKind::none;
    case Kind::real:
      return !among(kIntOnly, name) && among(kNumberUnsupported, name) ? MethodKind::unsupported : MethodKind::none;
    case Kind::callable:
      return among(kMacroUnsupported, name) ? MethodKind::unsupported : MethodKind::none;
    default:
      break;
  }
  if (found == nullptr) return MethodKind::none;
  name = found->name;
  return MethodKind::supported;
}

bool jinja_no_method(std::string_view name) {
  return method(kTextMethods, name) == nullptr && method(kDictMethods, name) == nullptr && !among(kListUnsafe, name) &&
         !among(kDictUnsafe, name);
}

JinjaValue jinja_call_method(const JinjaValue& receiver, std::string_view name, JinjaArguments& arguments,
                             JinjaWork& work) {
  const Method* found = receiver.is(Kind::dict)     ? method(kDictMethods, name)
                        : receiver.is(Kind::string) ? method(kTextMethods, name)
                                                    : nullptr;
  if (found == nullptr) jinja_unsupported(str("unknown method '", name, "' of ", jinja_type(receiver)));
  work.charge(1);
  return found->call({receiver, name, arguments, work});
}

}  // namespace bantam
