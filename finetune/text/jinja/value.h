// SPDX-License-Identifier: Apache-2.0
// The values that templates work on: Python's, as far as chat templates see them. A value is a tag and 8 bytes; texts,
// lists and dicts are shared and never change, so copies are cheap and several threads may read them.
#pragma once
#include <atomic>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bantam {

/// What a value shares with its copies.
struct JinjaObject {
  std::atomic<uint32_t> references{0};
  virtual ~JinjaObject() = default;
};

class JinjaValue {
 public:
  enum class Kind : uint8_t {
    missing,  ///< an argument that was not given; templates never see it
    none,
    boolean,
    integer,
    real,
    undefined,  ///< from here on an object stands behind the value
    string,
    sequence,  ///< list, tuple, range, views of a dict, an iterator that can be read once
    dict,
    name_space,
    loop,
    callable,  ///< macro, method bound to its object, global function
  };
  using List = std::vector<JinjaValue>;
  using Entries = std::vector<std::pair<JinjaValue, JinjaValue>>;

  JinjaValue() : kind_(Kind::none) { bits_.i = 0; }
  JinjaValue(bool b) : kind_(Kind::boolean) { bits_.b = b; }
  JinjaValue(int64_t i) : kind_(Kind::integer) { bits_.i = i; }
  JinjaValue(int i) : JinjaValue(int64_t{i}) {}
  JinjaValue(double d) : kind_(Kind::real) { bits_.d = d; }
  JinjaValue(std::string text);
  JinjaValue(std::string_view text) : JinjaValue(std::string(text)) {}
  JinjaValue(const char* text) : JinjaValue(std::string(text)) {}
  JinjaValue(Kind kind, JinjaObject* object);  ///< takes a reference
  static JinjaValue missing();
  /// Error(data) when nested deeper than 128 levels, like everything below that makes a container.
  static JinjaValue list(List items);
  /// Later entries of the same key replace earlier ones, at the first one's place.
  static JinjaValue dict(Entries entries);
  /// Objects keep their order. Error(data) for whole numbers above 64 bits (signed).
  static JinjaValue from_json(const nlohmann::ordered_json& json);

  JinjaValue(const JinjaValue& other) noexcept : kind_(other.kind_), bits_(other.bits_) { acquire(); }
  JinjaValue(JinjaValue&& other) noexcept : kind_(other.kind_), bits_(other.bits_) { other.kind_ = Kind::none; }
  JinjaValue& operator=(const JinjaValue& other) noexcept {
    JinjaValue copy(other);
    swap(copy);
    return *this;
  }
  JinjaValue& operator=(JinjaValue&& other) noexcept {
    swap(other);
    return *this;
  }
  ~JinjaValue() { release(); }
  void swap(JinjaValue& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(bits_, other.bits_);
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool boolean() const { return bits_.b; }     ///< of a boolean
  int64_t integer() const { return bits_.i; }  ///< of an integer
  double real() const { return bits_.d; }      ///< of a real
  const std::string& text() const;             ///< of a string
  const List& items() const;                   ///< of a sequence
  const Entries& entries() const;              ///< of a dict
  /// The value of a text key of a dict; null: none.
  const JinjaValue* find(std::string_view key) const;
  JinjaObject* object() const { return holds_object() ? bits_.o : nullptr; }

 private:
  bool holds_object() const { return kind_ >= Kind::undefined; }
  void acquire() const noexcept {
    if (holds_object()) bits_.o->references.fetch_add(1, std::memory_order_relaxed);
  }
  void release() noexcept {
    if (holds_object() && bits_.o->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete bits_.o;
  }

  Kind kind_;
  union {
    bool b;
    int64_t i;
    double d;
    JinjaObject* o;
  } bits_;
};

/// As Python's json.dumps(value, ensure_ascii=False) writes it; without a limit of its own.
std::string json_dumps(const JinjaValue& value);

}  // namespace bantam
