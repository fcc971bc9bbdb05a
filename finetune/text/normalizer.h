// SPDX-License-Identifier: Apache-2.0
// The first stage of tokenizer.json: text to normalised text.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "alignment.h"

namespace bantam {

/// One step. Immutable, safe in several threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes `text`, which is valid UTF-8 and not empty, in place. What changed is written to `edits`, if given.
  virtual void apply(std::string& text, Edits* edits) const = 0;
  /// True when text of ASCII characters alone stays as it is.
  virtual bool keeps_ascii() const { return false; }
};

/// The steps one after the other.
class Normalizers {
 public:
  explicit Normalizers(std::string where = "normalizer") : where_(std::move(where)) {}
  void add(std::unique_ptr<Normalizer> step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  /// True when `text` stays as it is, whatever the steps.
  bool keeps(std::string_view text) const;
  /// Error(data) when the text grows out of all proportion. What changed is added to `alignment`, if given.
  void apply(std::string& text, Alignment* alignment = nullptr) const;

 private:
  std::string where_;
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

/// The "normalizer" of a tokenizer.json (null: none). Error(model) naming `where`, the place within and the part that
/// is not known.
Normalizers read_normalizer(const nlohmann::json* j, const std::string& where);
std::unique_ptr<Normalizer> make_nfc();
/// NFC of a current Unicode, for vocabularies whose own code normalises with Python's unicodedata.
std::unique_ptr<Normalizer> make_nfc_current();

}  // namespace bantam
