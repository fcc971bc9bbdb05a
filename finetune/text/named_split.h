// SPDX-License-Identifier: Apache-2.0
// The split rules that GGUF files and tiktoken vocabularies only name.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

struct NamedSplit {
  std::string_view name;
  std::vector<std::string> patterns;  ///< one after the other; matches and gaps are pieces
  bool nfc = false, ignore_merges = false, adds_bos = false;
};
/// By tokenizer.ggml.pre. Error(model) listing the known names when `name` is not one of them.
const NamedSplit& named_split(std::string_view name, const std::string& where);

/// The rule of GPT-2, which "ByteLevel" means in tokenizer.json.
extern const char* const kGpt2Pattern;

}  // namespace bantam
