// SPDX-License-Identifier: Apache-2.0
// Text from a model: the training graph's forward with a KV cache per layer.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../model/model.h"
#include "executor.h"

namespace bantam {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 0;  ///< 0: greedy
  double top_p = 1;        ///< (0, 1]
  uint64_t seed = 42;
  std::vector<int32_t> stop;  ///< ids that end the text; they are not returned
};

class Generator {
 public:
  /// Room for `max_length` tokens in all (prompt and new), at most the model's max_position_embeddings.
  /// `adapters` may be null: the bare base.
  Generator(Context& ctx, std::shared_ptr<const Model> model, AdapterSet* adapters, DType dtype, int64_t max_length);

  /// Forgets the tokens so far.
  void reset();
  /// Appends tokens and returns the logits [vocab_size] after the last one. Error(usage) when there is no room.
  std::span<const float> append(std::span<const int32_t> ids);
  /// Logits after every given token of a fresh sequence: rows [ids.size(), vocab_size].
  Tensor logits(std::span<const int32_t> ids);
  /// Continues a prompt. `on_token` sees each new id and may return false to stop.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                const std::function<bool(int32_t)>& on_token = {});
  int64_t length() const { return length_; }

 private:
  /// Runs one chunk; returns the hidden rows.
  ConstTensorView forward(std::span<const int32_t> ids);
  void head(const ConstTensorView& hidden, const TensorView& out);
  Math math() const { return graph_.dtype == DType::bf16 ? Math::bf16 : Math::f32; }

  static constexpr int64_t kChunk = 256;  ///< tokens of a prompt that run at once: bounds the arena
  Context& ctx_;
  std::shared_ptr<const Model> model_;
  AdapterSet* adapters_;
  ModelGraph graph_;
  Program program_;
  int64_t max_length_, length_ = 0;
  std::optional<Arena> arena_;
  std::optional<StepBuffers> buffers_;
  std::shared_ptr<const WeightStore> store_;  // in the backend's memory
  std::optional<Executor> executor_;
  std::vector<KvCache> caches_;
  Tensor logits_;
  DeviceBuffer device_logits_;  ///< where the head writes on a backend with memory of its own
  size_t device_logits_bytes_ = 0;
};

}  // namespace bantam
