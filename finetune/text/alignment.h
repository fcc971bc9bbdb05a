// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a changed text come from. Steps that change nothing write nothing down and cost nothing.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer.h"

namespace bantam {

/// What one step did to a text: its changes from left to right; what is between them is as it was.
class Edits {
 public:
  /// Bytes [begin, end) of the text before became `length` bytes, each of which stands for all of them.
  void replace(size_t begin, size_t end, size_t length) { put(begin, end, length, {begin, end}); }
  /// `length` bytes were put in before byte `at` of the text before; they stand for `beside`, bytes of the same text.
  void insert(size_t at, size_t length, TextSpan beside) { put(at, at, length, beside); }
  /// The same in front of `text` and behind it: what is put in stands for the character beside it. `text` is valid
  /// UTF-8 and not empty.
  void insert_front(std::string_view text, size_t length);
  void insert_back(std::string_view text, size_t length);

  bool empty() const { return list_.empty(); }
  /// The bytes before the step that bytes behind it stand for; `now` is not empty.
  TextSpan source(TextSpan now) const;

 private:
  struct Edit {
    size_t begin, end;  // behind the step
    size_t next;        // the byte before the step that follows
    TextSpan from;
  };
  void put(size_t begin, size_t end, size_t length, TextSpan from);

  std::vector<Edit> list_;
};

/// The steps that led from a text to what it is now. What is `below` must outlive this.
class Alignment {
 public:
  Alignment() = default;
  /// Of a text that is, before the steps, the stretch at `offset` of what `below` describes.
  Alignment(const Alignment* below, size_t offset) : below_(below), offset_(offset) {}
  void add(Edits edits) {
    if (!edits.empty()) steps_.push_back(std::move(edits));
  }
  /// The bytes of the first text that these stand for; `now` is not empty.
  TextSpan source(TextSpan now) const;
  /// When nothing was changed, how far the bytes are from where they were.
  std::optional<size_t> shift() const;

 private:
  const Alignment* below_ = nullptr;
  size_t offset_ = 0;
  std::vector<Edits> steps_;
};

}  // namespace bantam
