// SPDX-License-Identifier: Apache-2.0
#include "list_filters.h"

#include <algorithm>
#include <charconv>

#include "builtins.h"
#include "ops.h"
#include "unicode.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;
using Value = const JinjaValue&;

// "a.b.0": what is looked up one after the other; digits are an index.
using Path = JinjaValue::List;

Path parse_path(std::string_view attribute) {
  Path out;
  for (const auto part : text_split(attribute, ".", -1, false)) {
    int64_t index = 0;
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (digits && std::from_chars(part.data(), part.data() + part.size(), index).ec == std::errc()) {
      out.emplace_back(index);
    } else {
      out.emplace_back(part);
    }
  }
  return out;
}

Path path_of(Value attribute) {
  if (attribute.is(Kind::missing) || attribute.is(Kind::none)) return {};
  if (attribute.is(Kind::integer)) return {attribute};
  if (!attribute.is(Kind::string)) jinja_data_fault(str("an attribute is a text, not ", jinja_type(attribute)));
  return parse_path(attribute.text());
}

JinjaValue follow(JinjaValue item, const Path& path, JinjaWork& work, Value otherwise = JinjaValue()) {
  for (const auto& part : path) {
    item = jinja_item(item, part, work);
    if (!otherwise.is(Kind::none) && item.is(Kind::undefined)) item = otherwise;
  }
  return item;
}

JinjaValue without_case(JinjaValue v, JinjaWork& work) {
  if (!v.is(Kind::string)) return v;
  work.charge(v.text().size());
  return JinjaValue(text_lower(v.text()));
}

// Python's sorted: stable, also backwards.
struct Keyed {
  JinjaValue::List keys;
  JinjaValue item;
};
JinjaValue sorted(std::vector<Keyed> all, bool backwards, JinjaWork& work) {
  const auto less = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size(); ++i) {
      if (jinja_equal(a.keys[i], b.keys[i], work)) continue;
      return jinja_compare(JinjaComparison::less, a.keys[i], b.keys[i], work);
    }
    return false;
  };
  if (backwards) std::reverse(all.begin(), all.end());
  std::stable_sort(all.begin(), all.end(), less);
  if (backwards) std::reverse(all.begin(), all.end());
  JinjaValue::List out;
  out.reserve(all.size());
  for (auto& keyed : all) out.push_back(std::move(keyed.item));
  return JinjaValue::list(std::move(out));
}

JinjaValue select(Value v, JinjaArguments& given, JinjaWork& work, bool attribute, bool keep) {
  const char* name = attribute ? (keep ? "selectattr" : "rejectattr") : (keep ? "select" : "reject");
  if (!given.named.empty()) {
    jinja_data_fault(str(name, "() got an unexpected keyword argument '", given.named[0].first, "'"));
  }
  JinjaValue::List out;
  if (!jinja_truth(v)) return jinja_sequence(SequenceKind::iterator, {});
  auto& a = given.positional;
  if (attribute && a.empty()) jinja_data_fault("Missing parameter for attribute name");
  const Path path = attribute ? path_of(a[0]) : Path();
  const size_t at = attribute;
  const JinjaTest* test = nullptr;
  if (a.size() > at) {
    if (!a[at].is(Kind::string)) jinja_data_fault(str("the name of a test is a text, not ", jinja_type(a[at])));
    test = jinja_find_test(a[at].text());
    if (test == nullptr) jinja_unsupported(str("unknown test '", a[at].text(), "'"));
    a.erase(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  for (auto& item : jinja_iterate(v, work)) {
    const JinjaValue looked_at = follow(item, path, work);
    const bool passes = test == nullptr ? jinja_truth(looked_at) : jinja_call_test(*test, looked_at, a, work);
    if (passes == keep) out.push_back(std::move(item));
  }
  return jinja_sequence(SequenceKind::iterator, std::move(out));
}

}  // namespace

JinjaValue jinja_filter_join(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("join", given, {"d", "attribute"});
  const std::string separator = a[0].is(Kind::missing) ? "" : jinja_str(a[0], work);
  const Path path = path_of(a[1]);
  std::string out;
  bool first = true;
  for (const auto& item : jinja_iterate(v, work)) {
    if (!first) {
      work.charge_text(separator.size(), out.size());
      out += separator;
    }
    first = false;
    jinja_append_str(out, path.empty() ? item : follow(item, path, work), work);
  }
  work.charge_text(out.size());
  return JinjaValue(std::move(out));
}

JinjaValue jinja_filter_list(const JinjaValue& v, JinjaArguments&, JinjaWork& work) {
  return JinjaValue::list(jinja_iterate(v, work));
}

JinjaValue jinja_filter_items(const JinjaValue& v, JinjaArguments&, JinjaWork& work) {
  JinjaValue::List out;
  if (!v.is(Kind::undefined)) {
    if (!v.is(Kind::dict)) jinja_data_fault("Can only get item pairs from a mapping.");
    work.charge(2 * v.entries().size());
    for (const auto& [key, value] : v.entries()) out.push_back(jinja_sequence(SequenceKind::tuple, {key, value}));
  }
  return jinja_sequence(SequenceKind::iterator, std::move(out));
}

JinjaValue jinja_filter_map(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  JinjaValue::List out;
  if (!jinja_truth(v)) return jinja_sequence(SequenceKind::iterator, {});
  if (given.positional.empty()) {
    const auto a = jinja_bind("map", given, {"attribute", "default"});
    if (a[0].is(Kind::missing)) jinja_data_fault("map requires a filter argument");
    const Path path = path_of(a[0]);
    const JinjaValue otherwise = a[1].is(Kind::missing) ? JinjaValue() : a[1];
    for (const auto& item : jinja_iterate(v, work)) out.push_back(follow(item, path, work, otherwise));
  } else {
    const JinjaValue name = given.positional[0];
    if (!name.is(Kind::string)) jinja_data_fault(str("the name of a filter is a text, not ", jinja_type(name)));
    const JinjaFilter* filter = jinja_find_filter(name.text());
    if (filter == nullptr) jinja_unsupported(str("unknown filter '", name.text(), "'"));
    given.positional.erase(given.positional.begin());
    if (!filter->any && given.positional.size() + given.named.size() < filter->required) {
      jinja_data_fault(str("filter '", name.text(), "' needs an argument"));
    }
    for (const auto& item : jinja_iterate(v, work)) {
      work.charge(1);
      JinjaArguments copy = given;
      out.push_back(filter->call(item, copy, work));
    }
  }
  return jinja_sequence(SequenceKind::iterator, std::move(out));
}

JinjaValue jinja_filter_select(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  return select(v, given, work, false, true);
}
JinjaValue jinja_filter_reject(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  return select(v, given, work, false, false);
}
JinjaValue jinja_filter_selectattr(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  return select(v, given, work, true, true);
}
JinjaValue jinja_filter_rejectattr(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  return select(v, given, work, true, false);
}

JinjaValue jinja_filter_dictsort(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("dictsort", given, {"case_sensitive", "by", "reverse"});
  if (v.is(Kind::undefined)) jinja_fail_undefined(v);
  if (!v.is(Kind::dict)) jinja_data_fault(str("'", jinja_type(v), "' object has no attribute 'items'"));
  const std::string by = a[1].is(Kind::missing) ? "key" : jinja_str(a[1], work);
  if (by != "key" && by != "value") jinja_data_fault("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> all;
  for (const auto& [key, value] : v.entries()) {
    const JinjaValue& sort_by = by == "key" ? key : value;
    all.push_back({{jinja_truth(a[0]) ? sort_by : without_case(sort_by, work)},
                   jinja_sequence(SequenceKind::tuple, {key, value})});
  }
  return sorted(std::move(all), jinja_truth(a[2]), work);
}

JinjaValue jinja_filter_sort(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("sort", given, {"reverse", "case_sensitive", "attribute"});
  std::vector<Path> paths;
  if (a[2].is(Kind::string)) {
    for (const auto part : text_split(a[2].text(), ",", -1, false)) paths.push_back(parse_path(part));
  } else {
    paths.push_back(path_of(a[2]));
  }
  std::vector<Keyed> all;
  for (auto& item : jinja_iterate(v, work)) {
    Keyed keyed;
    for (const auto& path : paths) {
      JinjaValue key = follow(item, path, work);
      keyed.keys.push_back(jinja_truth(a[1]) ? std::move(key) : without_case(std::move(key), work));
    }
    keyed.item = std::move(item);
    all.push_back(std::move(keyed));
  }
  return sorted(std::move(all), jinja_truth(a[0]), work);
}

JinjaValue jinja_filter_unique(const JinjaValue& v, JinjaArguments& given, JinjaWork& work) {
  const auto a = jinja_bind("unique", given, {"case_sensitive", "attribute"});
  const Path path = path_of(a[1]);
  JinjaValue::List seen, out;
  for (auto& item : jinja_iterate(v, work)) {
    JinjaValue key = follow(item, path, work);
    if (key.is(Kind::dict) || is_sequence_of(key, SequenceKind::list)) {
      jinja_data_fault(str("unhashable type: '", jinja_type(key), "'"));
    }
    if (!jinja_truth(a[0])) key = without_case(std::move(key), work);
    const bool known =
        std::any_of(seen.begin(), seen.end(), [&](const JinjaValue& s) { return jinja_equal(s, key, work); });
    if (known) continue;
    seen.push_back(std::move(key));
    out.push_back(std::move(item));
  }
  return jinja_sequence(SequenceKind::iterator, std::move(out));
}

JinjaValue jinja_filter_first(const JinjaValue& v, JinjaArguments&, JinjaWork& work) {
  if (is_sequence_of(v, SequenceKind::iterator)) {
    auto& iterator = as_sequence(v);
    if (iterator.read < iterator.items.size()) return iterator.items[iterator.read++];
    return jinja_undefined_hint("No first item, sequence was empty.");
  }
  const auto items = jinja_iterate(v, work);
  return items.empty() ? jinja_undefined_hint("No first item, sequence was empty.") : items.front();
}

JinjaValue jinja_filter_last(const JinjaValue& v, JinjaArguments&, JinjaWork& work) {
  if (!jinja_iterable(v) || is_sequence_of(v, SequenceKind::iterator)) {
    jinja_data_fault(str("'", jinja_type(v), "' object is not reversible"));
  }
  const auto items = jinja_iterate(v, work);
  return items.empty() ? jinja_undefined_hint("No last item, sequence was empty.") : items.back();
}

}  // namespace bantam
