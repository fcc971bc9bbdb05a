// SPDX-License-Identifier: Apache-2.0
// The tensors of a model file or folder under their HF names, whatever the container: what quantising, loading and
// inspecting read from. Rows are decoded on demand; nothing is copied before.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../kernels/dtype.h"

namespace bantam {

struct SourceTensor {
  std::string name;            ///< HF name, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  ///< row-major, outermost first
  std::string stored_as;       ///< "F32", "BF16", "Q4_1", ... for reports
  DType natural = DType::f32;  ///< dtype that keeps the precision: bf16 for BF16 sources, f32 for all others
  std::string file;            ///< for messages

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t cols() const {
    int64_t n = 1;
    for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
    return n;
  }
};

/// "[576, 192]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual const std::vector<SourceTensor>& tensors() const = 0;
  /// Decodes rows [r0, r0 + n) of tensor i to f32: out[n * cols]. Thread-safe.
  virtual void read_rows(size_t i, int64_t r0, int64_t n, float* out) const = 0;
  /// The same of a tensor that is stored in bf16, as bf16, which loses nothing. Thread-safe.
  virtual void read_rows_bf16(size_t i, int64_t r0, int64_t n, bf16* out) const;
  /// Text that identifies the content: path, size, mtime, hash of the header. The key of the cache of quantised stores.
  virtual std::string fingerprint() const = 0;
  /// Index of a tensor by HF name; -1 when there is none.
  int64_t find(std::string_view name) const;
  /// Tensor i, after checking that it has rows [r0, r0 + n): Error(internal) else. For implementations and callers.
  const SourceTensor& tensor_with_rows(size_t i, int64_t r0, int64_t n) const;
};

/// Tensors given in memory (tests, embedders): name -> (shape, values).
struct MemoryTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
std::unique_ptr<TensorSource> memory_source(std::map<std::string, MemoryTensor> tensors);

/// A folder with config.json and *.safetensors (one file, or several with model.safetensors.index.json), or a .gguf
/// file (names mapped to HF's, q/k rows un-permuted for llama). Headers are fully checked here; data is mapped.
std::unique_ptr<TensorSource> open_model_files(const std::filesystem::path& path);

}  // namespace bantam
