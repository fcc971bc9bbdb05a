// SPDX-License-Identifier: Apache-2.0
// LoRA (Hu et al. 2021, arXiv 2106.09685) in PEFT's words.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace bantam {

struct LoraConfig {
  int64_t r = 16;           ///< rank, >= 1
  double lora_alpha = 32;   ///< > 0
  double lora_dropout = 0;  ///< [0, 1), on the input of lora_A only
  bool use_rslora = false;  ///< scale alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023, arXiv 2312.03732)
  /// {"all-linear"}; or module names, each matching a path equal to it or ending in "." + it; or one regular expression
  /// (ECMAScript) that must match the whole path. A single entry with a character outside [A-Za-z0-9_.-] is a regex.
  std::vector<std::string> target_modules = {"all-linear"};

  /// What lora_B(lora_A(x)) is multiplied by.
  float scale() const;
};

/// Those of `linears` (paths such as "model.layers.0.self_attn.q_proj") that get an adapter, in the order given.
/// Error(usage) when a target matches nothing (lists the module names there are) or a regex does not parse.
std::vector<std::string> match_target_modules(const std::vector<std::string>& target_modules,
                                              const std::vector<std::string>& linears);

}  // namespace bantam
