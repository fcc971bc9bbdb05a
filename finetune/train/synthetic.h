// SPDX-License-Identifier: Apache-2.0
// Models of a shape without files: for calibration and self-checks.
#pragma once
#include <memory>

#include "../model/model.h"

namespace bantam {

/// A model with weights uniform in [-0.05, 0.05), the same for equal arguments on every machine, in anonymous memory.
std::shared_ptr<const Model> synthetic_model(const ModelConfig& config, const QuantConfig& quant = {});

}  // namespace bantam
