// SPDX-License-Identifier: Apache-2.0
// Seconds of ops on a device: work (FLOPs, or bytes where an op has no products) over a rate. Rates are measured once
// per machine and model shape (../train/calibrate.h), or assumed for a machine that is not here.
#pragma once
#include <map>
#include <string>

#include "program.h"

namespace bantam {

class CostModel {
 public:
  /// Every product at `flops_per_second`; a byte moved takes as long as kFlopsPerByte FLOPs, which is between what CPUs
  /// (10) and GPUs (150 and more) have.
  static CostModel assume(double flops_per_second);
  static constexpr double kFlopsPerByte = 40;

  /// Seconds of one op for `tokens` tokens in sequences of `sequence` (0: one). `dx`: whether the first input's
  /// gradient is wanted.
  double seconds(const ModelConfig& config, const LayerGraph& graph, const Op& op, bool backward, bool dx,
                 int64_t tokens, int64_t sequence = 0) const;

  /// Seconds per byte that a value costs which is kept from forward to backward: by then it has left the caches, so it
  /// is written to memory and read again.
  double seconds_per_kept_byte() const;
  static constexpr const char* kKept = "kept byte";

  /// A measurement: `seconds` for what `work` counts. Later ones of the same op replace earlier ones.
  void set(const std::string& key, double seconds_per_unit) { per_unit_[key] = seconds_per_unit; }
  const std::map<std::string, double>& rates() const { return per_unit_; }

  /// The name of an op's rate: kind, module within the layer, direction. Rates carry over to models of the same family.
  static std::string key(const Op& op, bool backward);
  /// Of all ops of its kind, for an op that was not measured itself: which linears share a lora_down depends on the
  /// adapters.
  static std::string kind_key(const Op& op, bool backward);
  /// FLOPs, or bytes moved where there are none.
  static double work(const ModelConfig& config, const LayerGraph& graph, const Op& op, bool backward, bool dx,
                     int64_t tokens, int64_t sequence = 0);

 private:
  double assumed_ = 0;  ///< FLOP/s where no rate is set
  std::map<std::string, double> per_unit_;
};

/// Seconds of a program at max_tokens. Moving kept values to memory and back counts to the backward that reads them.
struct ProgramCost {
  double forward = 0, recompute = 0, backward = 0;
  std::vector<double> actions;  ///< by action of the schedule
  double total() const { return forward + recompute + backward; }
};
ProgramCost cost_of(const Program& program, const ModelGraph& model, const CostModel& costs);

}  // namespace bantam
