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
};

struct CheckpointPolicy {
  CheckpointMode mode = CheckpointMode::full;
  /// selective: names of values ("mlp.gate_proj"), modules or op kinds ("attention") to keep beside the stage's input;
  /// empty: everything but the nearly free.
  std::vector<std::string> save;
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
};
std::vector<StageAnalysis> analyse(const ModelGraph& model);

/// Training schedule of a policy. Error(usage) when a name in `save` is no value, module or op kind of the layers.
Schedule training_schedule(const ModelGraph& model, const CheckpointPolicy& policy);
/// Forward only, nothing kept; ends with the losses.
Schedule evaluation_schedule(const ModelGraph& model);

}  // namespace bantam
