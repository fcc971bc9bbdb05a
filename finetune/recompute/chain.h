// SPDX-License-Identifier: Apache-2.0
// A model as the planner sees it: stages one after the other, each with bytes and seconds, nothing else. What a stage
// is (a layer, the tail with the loss) and what its options keep is known by saved_sets.h; here are only numbers.
//
// Memory rules, shared by planner, simulator and tests. Live at any time: inputs of stages, option sets of stages, and
// at most one gradient. `d_input[i]` is the gradient of the input of stage i.
//   forward(i)       input[i] -> input[i + 1]. At its peak: all that is live + input[i + 1] + forward_extra.
//                    Afterwards input[i] is dropped (`drop`), or stays (`keep`).
//   save(i, k)       the same; input[i] stays, and so does the set of option k.
//                    At its peak: all that is live + kept + input[i + 1] + its forward_extra.
//   backward(i)      needs input[i] and d_input[i + 1] (the last stage, which ends in the loss, needs no gradient).
//                    At its peak: all that is live + its backward_extra, which counts d_input[i] where that is a new
//                    buffer. Afterwards input[i], the option's set and d_input[i + 1] are gone, d_input[i] is live.
//   offload          a forward that keeps input[i], alone or with a set, may leave it in host memory: then it is not
//   live
//                    from its end to the beginning of the op before the next one of stage i. The forward takes at least
//                    `store` seconds, and `traffic` more; that op takes at least `load`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bantam {

/// What stays of a stage beside its input, and what that saves.
struct StageOption {
  size_t kept = 0;            ///< bytes beside the input
  size_t forward_extra = 0;   ///< peak of the forward beyond input, output and kept
  size_t backward_extra = 0;  ///< peak of the backward beyond input, kept and the gradient of the output
  double backward = 0;        ///< seconds, with the rebuilding of what is not kept
  bool operator==(const StageOption&) const = default;
};

struct StageCost {
  size_t input = 0, d_input = 0;  ///< bytes; d_input is 0 where nothing below is trained
  size_t forward_extra = 0;       ///< peak of a forward that keeps nothing, beyond input and output
  double forward = 0;             ///< seconds
  size_t backward_extra = 0;      ///< of a backward from the input alone
  double backward = 0;            ///< seconds of that, rebuilding included
  bool may_offload = false;       ///< the input may lie in host memory
  double store = 0, load = 0;     ///< seconds of copying the input to host memory and back
  double traffic = 0;             ///< seconds that the two copies take from the ops beside them
  std::vector<StageOption> options;
  bool operator==(const StageCost&) const = default;
};

struct Chain {
  std::vector<StageCost> stages;     ///< the last holds the loss: it has no forward of its own, its backward is all
  double without_recompute() const;  ///< seconds of a pass that rebuilds nothing: forwards and cheapest backwards
};

struct ChainOp {
  enum class Kind : uint8_t { forward_drop, forward_keep, save, backward };
  Kind kind = Kind::backward;
  int stage = 0, option = 0;
  bool offload = false;  ///< forward_keep and save: the input goes to host memory
  bool operator==(const ChainOp&) const = default;
};

struct Simulation {
  std::string error;  ///< empty: legal
  size_t peak = 0;    ///< the first stage's input included
  double seconds = 0;
};

/// Runs a schedule by the rules above. Legal when every op has what it needs, each stage but the last went forward, and
/// each went backward exactly once, ending with nothing live but the gradient of the first input.
Simulation simulate(const Chain& chain, const std::vector<ChainOp>& ops);

}  // namespace bantam
