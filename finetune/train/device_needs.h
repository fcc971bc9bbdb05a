// SPDX-License-Identifier: Apache-2.0
// What a program takes of a device beside the arena, before anything is allocated: the ops are asked, one by one, with
// views that have shapes and no memory.
#pragma once
#include <span>
#include <vector>

#include "../model/op_kind.h"
#include "../recompute/program.h"

namespace bantam {

/// Of all instructions, at max_tokens tokens and as many sequences, and of the step constants before them. `formats`:
/// of the model's matrices; `attention`: attention_library() of the context.
DeviceNeeds device_needs(const ModelGraph& model, const Program& program, const WeightFormats& formats,
                         const AttentionLibrary& attention);
/// Of both, one after the other.
DeviceNeeds combined(DeviceNeeds a, const DeviceNeeds& b);

/// Bytes of the slots for decoded weights, see Backend::reserve_decoded_weights: the best within `budget` of
///   all: each is decoded once in a run;
///   those of a few layers, at least one: what recompute decodes in a layer is there for its backward, and the last
///   layers of one sweep are there for the next; two of the largest: one is decoded while the other is read. This one
///   also when it is above the budget.
std::vector<size_t> decoded_slots(const DeviceNeeds& needs, size_t budget);

/// Their sum.
size_t sum_of(std::span<const size_t> slots);

}  // namespace bantam
