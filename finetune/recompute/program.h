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

/// A step of moving a stage's input to host memory and back, beside the instructions. By the order of events a copy
/// sees and leaves what the instructions around it need: `store` begins after those before `instr`, and its buffer
/// lives until `stored`; `load` begins after those before `instr`, where its buffer begins.
struct Transfer {
  enum class Kind : uint8_t {
    load,    ///< before the instruction: the copy from host memory begins
    loaded,  ///< before the instruction: it waits for that
    store,   ///< before the instruction: the copy to host memory begins
    stored,  ///< after the instruction: what follows waits for that
  };
  Kind kind = Kind::store;
  int instr = 0;
  int buffer = -1;
  int host = -1;  ///< index of Program::host
  int slot = -1;  ///< of the backend: one for a store with its stored, and a load with its loaded
};

/// Host memory of one input, from store to before loaded.
struct HostBuffer {
  int64_t row_bytes = 0;
  size_t bytes = 0;         ///< at max_tokens, a multiple of 64
  int first = 0, last = 0;  ///< instructions, inclusive
  size_t offset = 0;
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
  std::vector<Transfer> transfers;  ///< in order of instr, for one instr in the order of their kinds
  std::vector<HostBuffer> host;
  size_t host_peak = 0;  ///< bytes of pinned host memory, as placed
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
