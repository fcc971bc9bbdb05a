// SPDX-License-Identifier: Apache-2.0
// Adapter folders as PEFT writes and reads them: adapter_config.json and adapter_model.safetensors with keys
// base_model.model.<module>.lora_A.weight [r, in] and .lora_B.weight [out, r].
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "adapter_set.h"

namespace bantam {

/// What adapter_config.json says beside the LoRA settings.
struct PeftInfo {
  std::string base_model_name_or_path;
};

/// Writes both files (each beside, synced, renamed); values in f32. `all_linears` are the paths of all linear modules
/// of the base: target_modules is written as short names where those select exactly the adapted ones, else as full
/// paths.
void save_adapter(const std::filesystem::path& folder, const AdapterSet& adapters,
                  const std::vector<std::string>& all_linears, const PeftInfo& info);

/// Reads a folder onto the linears of a base. Error(model): a key that fits no module, a module with one matrix only, a
/// wrong shape, a kind of adapter that is not plain LoRA on linears (DoRA, modules_to_save, bias ...), an adapter whose
/// lora_B are all zero (it would have no effect) unless `allow_zero`.
AdapterSet load_adapter(const std::filesystem::path& folder, const std::vector<AdapterSet::Module>& linears,
                        bool allow_zero = false);

/// Fills the values of an existing set from a folder; every parameter must be there and nothing else. Error(model).
void read_adapter_values(const std::filesystem::path& folder, AdapterSet& adapters);

}  // namespace bantam
