// SPDX-License-Identifier: Apache-2.0
// Runs programs: the one forward of the product, used by training, evaluation and generation.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../../kernels/arena.h"
#include "../../kernels/device_buffer.h"
#include "../data/batch.h"
#include "../model/op_kind.h"
#include "../recompute/program.h"

namespace bantam {

/// Step constants of the largest micro-batch, filled anew for each.
class StepBuffers {
 public:
  /// On a backend with memory of its own, what kernels read is sent with each fill, without waiting for the device:
  /// ids, positions, row keys, rope. Labels, weights and cu_seqlens are read by the host and stay there.
  StepBuffers(const Backend& backend, const ModelConfig& config, int64_t max_tokens);
  /// `weight_scale`: what each row's weight is multiplied by (1 / total weight of the step). Error(internal) when the
  /// batch has more than max_tokens; Error(data) for an id or a label outside the vocabulary.
  const StepInputs& fill(const Batch& batch, double weight_scale, uint64_t seed, uint64_t epoch, bool training);
  /// One sequence that continues at position `start`; no labels (generation).
  const StepInputs& fill_tokens(std::span<const int32_t> ids, int64_t start);
  static size_t bytes(const ModelConfig& config, int64_t max_tokens);
  /// Of one fill's copy to the device, at most.
  static size_t upload_bytes(const ModelConfig& config, int64_t max_tokens);

 private:
  struct Layout {
    size_t ids = 0, positions = 0, row_key = 0, cos = 0, sin = 0, end = 0;
  };
  static Layout layout(int64_t half, int64_t tokens);
  void place(int64_t tokens);
  void fill_rope();
  void send();
  const Backend& backend_;
  std::vector<char> host_;  // what kernels read, in one piece: one copy brings it to the device
  size_t used_ = 0;
  DeviceBuffer device_;
  int32_t *ids_ = nullptr, *positions_ = nullptr;  // within host_, as place() has it
  uint64_t* row_key_ = nullptr;
  float *cos_ = nullptr, *sin_ = nullptr;
  std::vector<float> inv_freq_, weights_;
  /// On a device: cosines and sines of the positions below rope_known_, a row each, as far as sequences went, since a
  /// device waits for what the host computes between two steps.
  std::vector<float> rope_;
  int64_t rope_known_ = 0;
  std::vector<int32_t> labels_, cu_seqlens_;
  int64_t max_tokens_, half_, vocab_size_;
  StepInputs inputs_;
};

struct RunOptions {
  AdapterSet* adapters = nullptr;          ///< null: the bare base; gradients are added to it where the program has any
  std::vector<KvCache>* caches = nullptr;  ///< one per layer, generation only
  /// For tests: a buffer's bytes are NaN before its first and after its last instruction, and poisoned for
  /// AddressSanitizer, so that a read of a dead value shows.
  bool poison_dead = false;
  bool timed = false;  ///< adds to take_times()
  /// For benchmarks: called after each instruction with its seconds.
  std::function<void(const Instr&, const Op&, double)> profile;
};

/// Seconds that the ops of a run took.
struct RunTimes {
  double forward = 0, recompute = 0, backward = 0;
  /// What recompute added to the rest.
  double overhead() const { return forward + backward > 0 ? recompute / (forward + backward) : 0; }
  void add(const RunTimes& o) { forward += o.forward, recompute += o.recompute, backward += o.backward; }
};

/// Sets the views of a run from its instruction; view(ref) is where a value lies, absent when it is.
template <class View>
void bind_views(OpRun& r, const Instr& n, View&& view) {
  for (size_t k = 0; k < n.in.size(); ++k) {
    r.in[k] = view(n.in[k]);
    r.din[k] = view(n.din[k]);
    r.mode[k] = n.mode[k];
  }
  for (size_t k = 0; k < n.out.size(); ++k) {
    r.out[k] = view(n.out[k]);
    r.dout[k] = view(n.dout[k]);
  }
}

class Executor {
 public:
  /// `memory`: an arena region of at least the peak of every program to be run.
  Executor(Context& ctx, const ModelGraph& model, std::shared_ptr<const WeightStore> store, void* memory, size_t bytes);
  /// Gives the memory of reserve() back.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  /// Reserves what ops take of the device beside the arena, and the pinned host memory of uploads, on the calling
  /// thread; each run makes sure of it again, as executors share it. From then on nothing is allocated, and what needs
  /// more fails. Without a call memory grows on demand. Nothing to do on the CPU. Error(does_not_fit).
  void reserve(size_t workspace, size_t staging, std::vector<size_t> decoded_slots);
  /// Pinned memory (Backend::allocate_pinned) of at least host_peak of every program to be run. `memory` must outlive
  /// the runs, and their copies.
  void use_host_memory(void* memory, size_t bytes) { host_memory_ = static_cast<char*>(memory), host_bytes_ = bytes; }
  void run(const Program& program, const StepInputs& step, const RunOptions& options);
  /// Where a buffer of the program lies, after a run.
  const void* data(const Program& program, int buffer) const {
    return memory_ + program.buffers[static_cast<size_t>(buffer)].offset;
  }
  /// Per-row losses of the last run, valid until the next call.
  std::span<const float> losses(const Program& program, int64_t tokens);
  /// Of the timed runs since the last call; on a device this waits for their end.
  RunTimes take_times();
  const ModelGraph& model() const { return model_; }
  Context& context() { return ctx_; }

 private:
  TensorView view(const Program& p, const ValueRef& r, int64_t tokens) const;
  void claim() const;
  void prefetch(const Program& p, size_t instr) const;
  size_t transfer(const Program& p, size_t next, int instr, bool after, int64_t tokens) const;
  Context& ctx_;
  const ModelGraph& model_;
  std::shared_ptr<const WeightStore> store_;
  char* memory_;
  size_t bytes_;
  char* host_memory_ = nullptr;
  size_t host_bytes_ = 0;
  enum class Phase : uint8_t { forward, recompute, backward };
  double& seconds(Phase phase) {
    return phase == Phase::backward ? times_.backward : phase == Phase::recompute ? times_.recompute : times_.forward;
  }
  void collect_times();
  RunTimes times_;
  std::vector<std::optional<Phase>> marked_;  ///< on a device: what ran between mark i and i + 1, not yet in times_
  std::vector<float> losses_;                 // downloaded
  size_t workspace_ = 0, staging_ = 0;        // of reserve(); 0: not called
  std::vector<size_t> decoded_slots_;
};

}  // namespace bantam
