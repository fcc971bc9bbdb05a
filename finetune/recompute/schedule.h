// SPDX-License-Identifier: Apache-2.0
// What is kept from forward to backward, and in which order stages run. Every checkpointing mode is a Schedule; the
// compiler (program.h) turns any of them into a program, and results do not depend on which.
#pragma once
#include <string>
#include <vector>

#include "../model/layer_graph.h"

namespace bantam {

/// keep[v]: value v of the stage stays in memory from its forward to its backward.
using SavedSet = std::vector<bool>;

struct Action {
  enum class Kind : uint8_t { forward, backward };
  Kind kind = Kind::forward;
  int stage = 0;
  SavedSet keep;  ///< forward only; what is not kept is dropped at the end of the action
  /// Forward only, where `keep` has the input: it stays in host memory. Copied out while the forward runs, it comes
  /// back during the action before the next one of this stage. Backends with memory of their own only.
  bool offload_input = false;
};

/// A legal schedule runs each stage's forward with its input present, and each backward with the stage's input or
/// enough kept values, last stage first. A stage's forward may run more than once (multi-layer segments).
struct Schedule {
  std::string name;
  std::vector<Action> actions;
};

enum class CheckpointMode : uint8_t {
  off,        ///< gradient_checkpointing: false. Keeps all that backward reads
  selective,  ///< drops what is nearly free to rebuild, or keeps just the named values
  full,       ///< gradient_checkpointing: true. Keeps each stage's input only
  every_n,    ///< keeps the input of every n-th layer; the layers between run forward once more and are kept then
  sqrt,       ///< every_n with n = sqrt(number of layers), rounded up (Chen et al. 2016, arXiv 1604.06174)
  automatic,  ///< solved for a budget (schedule_planner.h)
};

struct CheckpointPolicy {
  CheckpointMode mode = CheckpointMode::automatic;
  /// selective: names of values ("mlp.gate_proj"), modules or op kinds ("attention") to keep beside the stage's input;
  /// empty: everything but the nearly free.
  std::vector<std::string> save;
  int every_n = 1;  ///< every_n: layers a segment
  /// activation_offloading: the inputs of layers that the first forward keeps lie in host memory until they are needed;
  /// for automatic: where that pays.
  bool offload_inputs = false;
};

/// What the analysis of one stage says; derived from the op list.
struct StageAnalysis {
  bool input_requires_grad = false;
  bool has_backward = false;           ///< some op of the stage runs backward
  std::vector<bool> requires_grad;     ///< by value
  std::vector<bool> runs_backward;     ///< by op
  std::vector<int> contributions;      ///< by value: ops that add to its gradient
  std::vector<int> producer;           ///< by value: op index; -1: the stage's input
  std::vector<bool> read_by_backward;  ///< by value
  bool operator==(const StageAnalysis&) const = default;
};
std::vector<StageAnalysis> analyse(const ModelGraph& model);

/// Whether a stage's input may lie in host memory: a layer's, since the tail reads its own at once.
inline bool may_offload(const LayerGraph& graph) {
  return graph.layer >= 0 && graph.input >= 0;
}
/// Inputs that the schedule keeps in host memory; one that goes there twice counts twice.
int offloaded_inputs(const Schedule& schedule);

/// Training schedule of a policy that needs no solving. Error(usage) when a name in `save` is no value, module or op
/// kind of the layers.
Schedule training_schedule(const ModelGraph& model, const CheckpointPolicy& policy);
/// By value: whether a nearly free op rebuilds it from what backward reads anyway, or from other such values. (Rope is
/// nearly free, but its input is the product of a linear that nobody keeps: its output is not cheap.)
std::vector<bool> cheap_to_rebuild(const LayerGraph& graph, const StageAnalysis& analysis);

/// The sets that the simple policies keep of a stage: its input, with all that backward reads, or alone.
SavedSet keep_all(const LayerGraph& graph, const StageAnalysis& analysis);
SavedSet keep_input(const LayerGraph& graph);

/// Forward only, nothing kept; ends with the losses.
Schedule evaluation_schedule(const ModelGraph& model);

}  // namespace bantam
