// SPDX-License-Identifier: Apache-2.0
// The filters on single values; those on lists are in list_filters.cc.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "builtins.h"
#include "list_filters.h"
#include "methods.h"
#include "ops.h"
#include "unicode.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;
using Value = const JinjaValue&;

bool absent(Value v) {
  return v.is(Kind::missing) || v.is(Kind::none);
}

// markupsafe's soft_str: a text as it is, anything else as str().
JinjaValue soft(Value v, JinjaWork& work) {
  return v.is(Kind::string) ? v : JinjaValue(jinja_str(v, work));
}

JinjaValue of_method(const char* method, Value v, JinjaValue::List arguments, JinjaWork& work) {
  JinjaArguments given{.positional = std::move(arguments)};
  return jinja_call_method(soft(v, work), method, given, work);
}

JinjaValue lower(Value v, JinjaArguments&, JinjaWork& work) {
  return of_method("lower", v, {}, work);
}
JinjaValue upper(Value v, JinjaArguments&, JinjaWork& work) {
  return of_method("upper", v, {}, work);
}
JinjaValue capitalize(Value v, JinjaArguments&, JinjaWork& work) {
  return of_method("capitalize", v, {}, work);
}

JinjaValue trim(Value v, JinjaArguments& given, JinjaWork& work) {
  return of_method("strip", v, {jinja_bind("trim", given, {"chars"})[0]}, work);
}

// Words begin behind white space and -([{<; unlike str.title, digits and quotes do not end one.
JinjaValue title(Value v, JinjaArguments&, JinjaWork& work) {
  const std::string text = jinja_str(v, work);
  work.charge_text(3 * text.size());
  work.charge(text.size());
  const auto breaks = [](std::string_view s, size_t& n) {
    const uint32_t c = text_code(s, n);
    return is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (size_t i = 0, n = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (breaks(rest, n)) {
      out += rest.substr(0, n);
      i += n;
      continue;
    }
    size_t end = 0;
    const size_t first = n;
    while (end < rest.size() && !breaks(rest.substr(end), n)) end += n;
    out += text_upper(rest.substr(0, first)) + text_lower(rest.substr(first, end - first));
    i += end;
  }
  return JinjaValue(std::move(out));
}

JinjaValue to_string(Value v, JinjaArguments&, JinjaWork& work) {
  return soft(v, work);
}

JinjaValue safe(Value v, JinjaArguments&, JinjaWork& work) {
  return is_markup(v) ? v : jinja_markup(jinja_str(v, work), true);
}

JinjaValue length(Value v, JinjaArguments&, JinjaWork& work) {
  return jinja_length(v, work);
}

JinjaValue otherwise(Value v, JinjaArguments& given, JinjaWork&) {
  const auto a = jinja_bind("default", given, {"default_value", "boolean"});
  if (!v.is(Kind::undefined) && !(jinja_truth(a[1]) && !jinja_truth(v))) return v;
  return a[0].is(Kind::missing) ? JinjaValue("") : a[0];
}

JinjaValue replace(Value v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("replace", given, {"old", "new", "count"});
  JinjaValue::List arguments = {JinjaValue(jinja_str(a[0], work)), JinjaValue(jinja_str(a[1], work))};
  if (!absent(a[2])) arguments.push_back(a[2]);
  return of_method("replace", JinjaValue(jinja_str(v, work)), std::move(arguments), work);
}

JinjaValue indent(Value v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("indent", given, {"width", "first", "blank"});
  if (v.is(Kind::undefined)) jinja_fail_undefined(v);
  if (is_sequence_of(v, SequenceKind::list)) jinja_data_fault("'list' object has no attribute 'splitlines'");
  if (!v.is(Kind::string)) jinja_data_fault(str("unsupported operand type(s) for +=: '", jinja_type(v), "' and 'str'"));
  std::string space(4, ' ');
  if (a[0].is(Kind::string)) {
    space = a[0].text();
  } else if (a[0].is(Kind::integer)) {
    work.charge_text(static_cast<size_t>(std::max<int64_t>(a[0].integer(), 0)));
    space = std::string(static_cast<size_t>(std::max<int64_t>(a[0].integer(), 0)), ' ');
  } else if (!a[0].is(Kind::missing)) {
    jinja_data_fault(str("indent takes a width or a text, not ", jinja_type(a[0])));
  }
  const std::string text = v.text() + "\n";
  const auto lines = text_splitlines(text, false);
  work.charge_text(text.size() + lines.size() * space.size());
  work.charge(text.size() / 4);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    const bool indented = i == 0 ? jinja_truth(a[1]) : !lines[i].empty() || jinja_truth(a[2]);
    if (indented) out += space;
    out += lines[i];
  }
  return jinja_markup(std::move(out), is_markup(v));
}

// The text of a number without underscores between digits; nothing where Python would not read it either.
std::optional<std::string> number_text(std::string_view s) {
  s = text_strip(s, std::nullopt, true, true);
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '_') {
      const auto digit = [&](size_t k) { return k < s.size() && s[k] >= '0' && s[k] <= '9'; };
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
    } else {
      out.push_back(s[i]);
    }
  }
  if (out.starts_with('+')) {
    out.erase(0, 1);
    if (out.starts_with('-') || out.starts_with('+')) return std::nullopt;
  }
  return out;
}

std::optional<double> read_real(std::string_view s) {
  const auto text = number_text(s);
  if (!text || text->empty()) return std::nullopt;
  const char c = (*text)[text->size() > 1 && (*text)[0] == '-'];
  if (!(c >= '0' && c <= '9') && c != '.') {  // names of infinity and NaN, in any case
    const std::string name = text_lower(*text);
    const std::string_view bare = std::string_view(name).substr(name[0] == '-');
    if (bare == "nan") return std::nan("");
    if (bare == "inf" || bare == "infinity") return name[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    return std::nullopt;
  }
  double value = 0;
  const auto r = std::from_chars(text->data(), text->data() + text->size(), value);
  if (r.ptr != text->data() + text->size()) return std::nullopt;
  if (r.ec == std::errc::result_out_of_range) {  // as strtod has it: infinity, or zero
    const size_t e = text->find_first_of("eE");
    const bool small = e != std::string::npos && e + 1 < text->size() && (*text)[e + 1] == '-';
    value = small ? 0 : HUGE_VAL;
    return (*text)[0] == '-' ? -value : value;
  }
  return r.ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<JinjaValue> truncate(double d) {
  if (std::isnan(d) || std::isinf(d)) return std::nullopt;
  if (!(std::fabs(d) < 9223372036854775808.0)) jinja_data_fault("a whole number beyond 64 bits");
  return JinjaValue(static_cast<int64_t>(d));
}

JinjaValue to_int(Value v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("int", given, {"default", "base"});
  const JinjaValue fallback = a[0].is(Kind::missing) ? JinjaValue(0) : a[0];
  if (!a[1].is(Kind::missing) && !(a[1].is(Kind::integer) && a[1].integer() == 10)) {
    jinja_unsupported("filter 'int' with another base than 10 is not supported");
  }
  switch (v.kind()) {
    case Kind::undefined:
      jinja_fail_undefined(v);
    case Kind::boolean:
      return int64_t{v.boolean()};
    case Kind::integer:
      return v;
    case Kind::real:
      return truncate(v.real()).value_or(fallback);
    case Kind::string: {
      work.charge(v.text().size() / 64);
      const auto text = number_text(v.text());
      const bool digits = text && text->find_first_not_of("0123456789", text->starts_with('-')) == std::string::npos &&
                          text->size() > static_cast<size_t>(text->starts_with('-'));
      if (digits) {
        int64_t value = 0;
        if (std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc()) {
          jinja_data_fault("a whole number beyond 64 bits");
        }
        return value;
      }
      const auto real = read_real(v.text());
      return real ? truncate(*real).value_or(fallback) : fallback;
    }
    default:
      return fallback;
  }
}

JinjaValue to_float(Value v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("float", given, {"default"});
  const JinjaValue fallback = a[0].is(Kind::missing) ? JinjaValue(0.0) : a[0];
  switch (v.kind()) {
    case Kind::undefined:
      jinja_fail_undefined(v);
    case Kind::boolean:
      return static_cast<double>(v.boolean());
    case Kind::integer:
      return static_cast<double>(v.integer());
    case Kind::real:
      return v;
    case Kind::string: {
      work.charge(v.text().size() / 64);
      const auto real = read_real(v.text());
      return real ? JinjaValue(*real) : fallback;
    }
    default:
      return fallback;
  }
}

JinjaValue to_json(Value v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonDump options;
  options.ensure_ascii = jinja_truth(a[0]);
  options.sort_keys = jinja_truth(a[3]);
  if (!absent(a[1])) {
    options.pretty = true;
    options.item_separator = ",";
    if (a[1].is(Kind::string)) {
      options.indent = a[1].text();
    } else if (a[1].is(Kind::integer) || a[1].is(Kind::boolean)) {
      const int64_t n = a[1].is(Kind::boolean) ? int64_t{a[1].boolean()} : a[1].integer();
      if (n > 1000) jinja_data_fault("tojson: an indent of more than 1000");
      options.indent = std::string(static_cast<size_t>(std::max<int64_t>(n, 0)), ' ');
    } else {
      jinja_data_fault(str("tojson: indent is a number or a text, not ", jinja_type(a[1])));
    }
  }
  if (!absent(a[2])) {
    const bool two = a[2].is(Kind::sequence) && a[2].items().size() == 2 && a[2].items()[0].is(Kind::string) &&
                     a[2].items()[1].is(Kind::string);
    if (!two) jinja_data_fault("tojson: separators are two texts");
    options.item_separator = a[2].items()[0].text();
    options.key_separator = a[2].items()[1].text();
  }
  return JinjaValue(jinja_to_json(v, options, work));
}

const JinjaFilter kFilters[] = {
    {"tojson", to_json, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"length", length, {}},
    {"count", length, {}},
    {"trim", trim, {"chars"}},
    {"string", to_string, {}},
    {"safe", safe, {}},
    {"join", jinja_filter_join, {"d", "attribute"}},
    {"list", jinja_filter_list, {}},
    {"default", otherwise, {"default_value", "boolean"}},
    {"d", otherwise, {"default_value", "boolean"}},
    {"items", jinja_filter_items, {}},
    {"map", jinja_filter_map, {}, 0, true},
    {"select", jinja_filter_select, {}, 0, true},
    {"reject", jinja_filter_reject, {}, 0, true},
    {"selectattr", jinja_filter_selectattr, {}, 0, true},
    {"rejectattr", jinja_filter_rejectattr, {}, 0, true},
    {"lower", lower, {}},
    {"upper", upper, {}},
    {"capitalize", capitalize, {}},
    {"title", title, {}},
    {"dictsort", jinja_filter_dictsort, {"case_sensitive", "by", "reverse"}},
    {"sort", jinja_filter_sort, {"reverse", "case_sensitive", "attribute"}},
    {"unique", jinja_filter_unique, {"case_sensitive", "attribute"}},
    {"first", jinja_filter_first, {}},
    {"last", jinja_filter_last, {}},
    {"int", to_int, {"default", "base"}},
    {"float", to_float, {"default"}},
    {"replace", replace, {"old", "new", "count"}, 2},
    {"indent", indent, {"width", "first", "blank"}},
};

}  // namespace

const JinjaFilter* jinja_find_filter(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& f) { return f.name == name; });
  return it == std::end(kFilters) ? nullptr : it;
}

}  // namespace bantam
