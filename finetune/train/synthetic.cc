// SPDX-License-Identifier: Apache-2.0
#include "synthetic.h"

#include <map>

namespace bantam {

std::shared_ptr<const Model> synthetic_model(const ModelConfig& config, const QuantConfig& quant) {
  std::map<std::string, MemoryTensor> tensors;
  uint64_t state = 1;
  for (const SourceTensor& t : expected_tensors(config, DType::bf16)) {
    MemoryTensor m;
    m.shape = t.shape;
    m.values.resize(static_cast<size_t>(t.rows() * t.cols()));
    for (float& v : m.values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      v = (static_cast<float>(state >> 40) * 0x1p-24f - 0.5f) * 0.1f;
    }
    tensors[t.name] = std::move(m);
  }
  auto model = std::make_shared<Model>();
  model->config = config;
  model->quant = quant;
  model->store = WeightStore::in_memory(*memory_source(std::move(tensors)), quant);
  return model;
}

}  // namespace bantam
