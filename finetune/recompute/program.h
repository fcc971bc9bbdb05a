// SPDX-License-Identifier: Apache-2.0
// A schedule compiled to a straight list of instructions over buffers with fixed offsets: forward, loss, recompute and
// backward of a whole micro-batch. Memory is exact because nothing is decided later.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "../../kernels/context.h"
#include "schedule.h"

namespace bantam {

/// A value, gradient or scratch in the arena. Several values may share a buffer one after the other (in-place ops).
struct Buffer {
  std::string name;         ///< of the value it was made for: "model.layers.3.mlp.gate_proj", "d ..." for gradients
  int64_t row_bytes = 0;    ///< bytes per token; 0: fixed size
  size_t bytes = 0;         ///< at max_tokens, a multiple of 64
  int first = 0, last = 0;  ///< instructions, inclusive; a result that the caller reads lives to the end
  bool saved = false;       ///< kept from a forward to its backward
  size_t offset = 0;
};

struct ValueRef {
  int buffer = -1;  ///< -1: absent
  int64_t width = 0;
  DType dtype = DType::f32;
};

struct Instr {
  bool backward = false;
  bool recompute = false;  ///< a forward that was run before
  int stage = 0, op = 0;
  std::array<ValueRef, 3> in{}, din{};
  std::array<GradMode, 3> mode{};
  std::array<ValueRef, 2> out{}, dout{};
  int scratch = -1;  ///< buffer
};

struct ProgramOptions {
  int64_t max_tokens = 0;
  size_t loss_chunk_bytes = size_t{128} << 20;
  int64_t sequence = 0;  ///< typical length of a sequence in a micro-batch, for time only; 0: one of max_tokens
  bool place = true;     ///< false: no offsets, and peak is live_peak; for planning
};

/// The instructions of one action of the schedule: [first, last).
struct ActionSpan {
  Action::Kind kind = Action::Kind::forward;
  int stage = 0, first = 0, last = 0;
};

struct Program {
  std::string schedule;
  int64_t max_tokens = 0, sequence = 0;
  std::vector<Instr> instrs;
  std::vector<Buffer> buffers;
  std::vector<ActionSpan> actions;
  int loss = -1;         ///< buffer of the per-row losses [T] f32; -1: the model ends with hidden states
  int result = -1;       ///< buffer of the last stage's output, where it has one
  size_t peak = 0;       ///< bytes of arena, as placed
  size_t live_peak = 0;  ///< greatest sum of bytes live at once
  size_t saved_at_peak = 0, scratch_at_peak = 0;  ///< of live_peak: saved activations; op scratch (the loss chunk)
  double forward_flops = 0, recompute_flops = 0, backward_flops = 0;  ///< at max_tokens
};

/// Bytes live at each instruction.
std::vector<size_t> live_bytes(const Program& program);

/// Error(internal) naming stage and value when the schedule is not legal.
Program compile(const ModelGraph& model, const Schedule& schedule, const ProgramOptions& options);

}  // namespace bantam
