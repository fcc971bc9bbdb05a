// SPDX-License-Identifier: Apache-2.0
// From a model to the planner's chain: which sets of values are worth keeping per stage, what each costs in bytes and
// seconds, and back from the planner's ops to a schedule. All of it is derived from the layer graphs.
#pragma once
#include "chain.h"
#include "cost_model.h"
#include "schedule.h"

namespace bantam {

/// The Pareto front of a stage's saved sets (bytes kept against seconds of rebuilding), fewest bytes first, without the
/// input alone, which is always possible; the last one rebuilds nothing. Every set holds the input.
constexpr size_t kMostOptions = 24;
std::vector<SavedSet> saved_sets(const ModelConfig& config, const LayerGraph& graph, const StageAnalysis& analysis,
                                 const CostModel& costs, int64_t max_tokens, int64_t sequence = 0);

/// The trained part of a model (from the first stage that runs backward) as a chain.
struct ChainModel {
  Chain chain;
  int first_stage = 0;                      ///< of the model: stage 0 of the chain
  std::vector<std::vector<SavedSet>> sets;  ///< [stage of the chain][option]
  size_t outside = 0;                       ///< bytes live beside what the chain counts (the losses), at most
  double seconds_below = 0;                 ///< forward of the stages below
};
ChainModel chain_of(const ModelGraph& model, const CostModel& costs, const ProgramOptions& options);

/// Lets inputs of layers lie in host memory, with what the copies cost: of the first ones, which are kept longest, as
/// many as go into host_bytes (0: any number); in chains of more than 200 stages all or none, as two kinds of layers
/// take the planner much longer than one.
void allow_offload(ChainModel& chain, const ModelGraph& model, const CostModel& costs, size_t host_bytes);

Schedule schedule_of(const ModelGraph& model, const ChainModel& chain, const std::vector<ChainOp>& ops,
                     const std::string& name);

}  // namespace bantam
