// SPDX-License-Identifier: Apache-2.0
#include "conversation_json.h"

#include <nlohmann/json.hpp>

namespace bantam {
namespace {

constexpr size_t kMostLevels = 64;

// Straight to values: no tree of another kind between, and a key that comes twice costs no search through all others.
class ValueBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  ValueBuilder(std::string_view text, const RowPath& path) : text_(text), path_(path) {}

  bool null() override { return put({}); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(int64_t{v}); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > uint64_t{INT64_MAX}) row_fault(path_, str("whole number too large: ", v));
    return put(static_cast<int64_t>(v));
  }
  bool number_float(number_float_t v, const string_t& spelled) override {
    // whole numbers of more than 64 bits come here too
    if (spelled.find_first_of(".eE") == string_t::npos)
      row_fault(path_, str("whole number too large: ", printable(spelled, 40)));
    return put(v);
  }
  bool string(string_t& v) override { return put(JinjaValue(std::move(v))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool key(string_t& v) override {
    levels_.back().key = JinjaValue(std::move(v));
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t byte, const std::string&, const nlohmann::json::exception&) override {
    row_fault(path_, str("expected JSON text, found an error at byte ", byte, " of '", printable(text_, 60), "'"));
  }
  JinjaValue result() { return std::move(result_); }

 private:
  struct Level {
    bool object = false;
    JinjaValue key;
    JinjaValue::List items;
    JinjaValue::Entries entries;
  };
  bool open(bool object) {
    if (levels_.size() == kMostLevels) row_fault(path_, str("JSON text nested deeper than ", kMostLevels, " levels"));
    levels_.emplace_back().object = object;
    return true;
  }
  bool close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return put(level.object ? JinjaValue::dict(std::move(level.entries)) : JinjaValue::list(std::move(level.items)));
  }
  bool put(JinjaValue v) {
    if (levels_.empty()) {
      result_ = std::move(v);
    } else if (Level& level = levels_.back(); level.object) {
      level.entries.emplace_back(std::move(level.key), std::move(v));
    } else {
      level.items.push_back(std::move(v));
    }
    return true;
  }

  std::string_view text_;
  const RowPath& path_;
  std::vector<Level> levels_;
  JinjaValue result_;
};

}  // namespace

JinjaValue parse_row_json(std::string_view text, const RowPath& path) {
  ValueBuilder builder(text, path);
  nlohmann::json::sax_parse(text, &builder);
  return builder.result();
}

JinjaValue row_value(const nlohmann::ordered_json& json, const RowPath& path) {
  try {
    return JinjaValue::from_json(json);
  } catch (const Error& e) {
    row_fault(path, e.what(), e.hint());
  }
}

}  // namespace bantam
