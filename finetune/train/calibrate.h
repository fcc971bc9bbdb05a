// SPDX-License-Identifier: Apache-2.0
// The machine's rates for each op of a model's layers, measured by running one layer of that shape (scaled down where
// it is large) forward, again and backward; on a device also of copies to host memory and back. Takes well under a
// second, once per machine and shape.
#pragma once
#include <filesystem>
#include <string>

#include "../../lora/lora_config.h"
#include "../recompute/cost_model.h"

namespace bantam {

struct CalibrationShape {
  ModelConfig config;
  DType dtype = DType::bf16;
  LoraConfig lora;
  int64_t tokens = 0;  ///< of the micro-batches to come; about a thousand are enough to measure on
  size_t loss_chunk_bytes = size_t{128} << 20;
};

/// What rates belong to: the name of the device that `ctx` computes on, a GPU's or the processor's.
std::string machine_name(const Context& ctx);

/// Measures.
CostModel calibrate(Context& ctx, const CalibrationShape& shape);

/// From `cache_dir`/rates where this machine has measured that shape before (key: processor, tier, threads, sizes,
/// dtype, LoRA); else calibrate(), kept there when the folder can be written.
CostModel measured_costs(Context& ctx, const CalibrationShape& shape, const std::filesystem::path& cache_dir);

}  // namespace bantam
