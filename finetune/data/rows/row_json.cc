// SPDX-License-Identifier: Apache-2.0
// Text to an ordered object. nlohmann's own builder looks for each key among all before it, which takes hours for a
// hostile row, and knows no limit of depth; this one has both, and sees each text once for its carriage returns.
#include <map>

#include "../../text/json_file.h"
#include "../../text/utf8.h"
#include "row_reader_parts.h"

namespace bantam {
namespace {

using nlohmann::ordered_json;
using Object = ordered_json::object_t;

class Builder {
 public:
  Builder(ordered_json& root, const ReaderOptions& options, RowNotes& notes)
      : root_(root), options_(options), notes_(notes) {}

  bool too_deep = false;
  JsonFault fault;

  // nlohmann's interface for parsing without a tree; false stops.
  bool null() { return scalar(nullptr); }
  bool boolean(bool v) { return scalar(v); }
  bool number_integer(int64_t v) { return scalar(v); }
  bool number_unsigned(uint64_t v) { return scalar(v); }
  bool number_float(double v, const std::string&) { return scalar(v); }
  bool string(std::string& v) {
    note_carriage_returns(v, options_, notes_);
    return scalar(std::move(v));
  }
  bool binary(ordered_json::binary_t&) { return false; }  // not in text
  bool start_object(size_t) { return open(ordered_json::object()); }
  bool start_array(size_t) { return open(ordered_json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    slot_ = &place(std::move(name));
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& e) {
    fault.offset = position > 0 ? position - 1 : 0;
    fault.what = e.what();
    // Without "[json.exception.parse_error.101] parse error at line 1, column 2: ", whose place is the row's.
    if (const size_t end = fault.what.find("] "); end != std::string::npos) fault.what.erase(0, end + 2);
    const size_t column = fault.what.find("column ");
    const size_t colon = column == std::string::npos ? std::string::npos : fault.what.find(": ", column);
    if (colon != std::string::npos) fault.what.erase(0, colon + 2);
    return false;
  }

 private:
  struct Level {
    ordered_json* value;
    std::map<std::string, size_t> index;  // of a large object's keys
  };
  static constexpr size_t kLarge = 24;

  ordered_json& place(std::string name) {
    Level& level = open_.back();
    Object::Container& members = level.value->get_ref<Object&>();  // its own operator[] searches
    if (members.size() < kLarge) {
      for (auto& [known, value] : members) {
        if (known == name) return value;
      }
    } else {
      if (level.index.empty()) {
        for (size_t i = 0; i < members.size(); ++i) level.index.emplace(members[i].first, i);
      }
      const auto [at, fresh] = level.index.emplace(name, members.size());
      if (!fresh) return members[at->second].second;
    }
    return members.emplace_back(std::move(name), nullptr).second;
  }

  ordered_json* put(ordered_json v) {
    if (open_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    ordered_json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.get_ref<ordered_json::array_t&>().push_back(std::move(v));
      return &parent.back();
    }
    *slot_ = std::move(v);
    return slot_;
  }

  template <class T>
  bool scalar(T&& v) {
    put(ordered_json(std::forward<T>(v)));
    return true;
  }
  bool open(ordered_json v) {
    if (open_.size() >= static_cast<size_t>(options_.limits.max_depth)) {
      too_deep = true;
      return false;
    }
    open_.push_back({put(std::move(v)), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  ordered_json& root_;
  const ReaderOptions& options_;
  RowNotes& notes_;
  std::vector<Level> open_;  // a value in here does not move: what holds it grows only after it is closed
  ordered_json* slot_ = nullptr;
};

}  // namespace

std::optional<JsonFault> parse_json_object(std::string_view text, const ReaderOptions& options,
                                           nlohmann::ordered_json& object, RowNotes& notes) {
  object = nullptr;
  RowNotes noted;
  Builder builder(object, options, noted);
  if (ordered_json::sax_parse(text.data(), text.data() + text.size(), &builder)) {
    if (!object.is_object()) return JsonFault{0, str("expected an object, found ", object.type_name())};
    notes.carriage_returns += noted.carriage_returns;
    return std::nullopt;
  }
  object = nullptr;
  if (builder.too_deep) {
    const size_t at = json_too_deep(text, options.limits.max_depth);
    return JsonFault{at == std::string_view::npos ? 0 : at,
                     str("nested deeper than ", options.limits.max_depth, " levels")};
  }
  builder.fault.what = printable(builder.fault.what, 300);
  return builder.fault;
}

}  // namespace bantam
