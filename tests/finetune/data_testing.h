// SPDX-License-Identifier: Apache-2.0
// A tokenizer that needs no files: one token per byte, so that lengths in the tests can be counted by eye.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "finetune/text/tokenizer.h"

namespace bantam::testing {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257;
  bool bos = true, eos = false, has_eos = true;

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> out;
    if (options.add_special && bos) out.push_back(kBos);
    for (const char c : text) {
      if (c != '~') out.push_back(static_cast<uint8_t>(c));  // no token
    }
    if (options.add_special && eos) out.push_back(kEos);
    return out;
  }
  Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const override {
    Encoding out;
    if (options.add_special && bos) out.ids.push_back(kBos), out.spans.emplace_back();
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '~') out.ids.push_back(static_cast<uint8_t>(text[i])), out.spans.push_back({i, i + 1});
    }
    if (options.add_special && eos) out.ids.push_back(kEos), out.spans.push_back({text.size(), text.size()});
    return out;
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string out;
    for (const int32_t id : ids) {
      if (id < 256) {
        out.push_back(static_cast<char>(id));
      } else if (!skip_special) {
        out += id == kBos ? "<s>" : "</s>";
      }
    }
    return out;
  }
  int32_t vocab_size() const override { return 258; }
  int32_t bos_id() const override { return kBos; }
  int32_t eos_id() const override { return has_eos ? kEos : -1; }
  bool adds_bos() const override { return bos; }
  bool adds_eos() const override { return eos; }
  int32_t token_id(std::string_view) const override { return -1; }
  std::string piece(int32_t id) const override {
    return id == kBos ? "<s>" : id == kEos ? "</s>" : std::string(1, static_cast<char>(id));
  }
  bool is_special(int32_t id) const override { return id >= kBos; }
  std::vector<std::pair<std::string, std::string>> files() const override { return {}; }
  size_t unencodable(std::string_view text) const override {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '~'));
  }
};

}  // namespace bantam::testing
