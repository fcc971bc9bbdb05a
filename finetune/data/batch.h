// SPDX-License-Identifier: Apache-2.0
// Batches: strips of packed tokens, no padding anywhere, and the order in which an epoch visits them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dataset.h"
#include "samples/sample_set.h"

namespace bantam {

/// A micro-batch: T tokens of several whole samples, one after the other.
struct Batch {
  std::vector<int32_t> ids;          ///< [T]
  std::vector<int32_t> labels;       ///< [T] the next token of the same sample where that is trained, else kIgnoreLabel
  std::vector<float> weights;        ///< [T] of the label's loss: the sample's weight of it, 0 without a label
  std::vector<int32_t> positions;    ///< [T] from 0 in each sample
  std::vector<int32_t> cu_seqlens;   ///< [num_seqs + 1]
  std::vector<uint64_t> sample_ids;  ///< [num_seqs]
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  double total_weight() const;
};

/// The micro-batches of one optimiser step; the loss is a sum over all of them divided by total_weight.
struct StepBatch {
  std::vector<Batch> micro;
  double total_weight = 0;
};

struct BatchOptions {
  int64_t micro_batch_size = 1, gradient_accumulation_steps = 8, max_seq_length = 2048;
  bool sample_packing = true;  ///< packs of micro_batch_size * max_seq_length tokens; else micro_batch_size rows
  uint64_t seed = 42;
  bool longest_batch_first = true;  ///< the step with the longest micro-batch opens the first epoch, that one first
};

/// Which samples (indices) form each micro-batch of each step of one epoch. Flat, for many samples.
struct EpochPlan {
  std::vector<int32_t> order;            ///< samples, one micro-batch after the other
  std::vector<int64_t> micro_starts{0};  ///< [micro_batches + 1] in order
  std::vector<int64_t> step_starts{0};   ///< [steps + 1] in the micro-batches
  int64_t longest_micro_batch = 0;       ///< tokens
  int64_t steps() const { return static_cast<int64_t>(step_starts.size()) - 1; }
  int64_t micro_batches() const { return static_cast<int64_t>(micro_starts.size()) - 1; }
  std::span<const int32_t> micro_batch(int64_t i) const;
  std::vector<std::vector<int32_t>> step(int64_t i) const;  ///< [micro][sample]
  bool operator==(const EpochPlan&) const = default;
};

/// A function of the samples' lengths, options, weights and epoch only; reads no token. Every sample appears exactly
/// once, in an order shuffled by (seed, epoch), but for longest_batch_first. The last window may hold fewer
/// micro-batches. Packed rows are packed as tightly as their lengths allow (see packing.h), and the packs shuffled.
///
/// `source_weights`: how often the rows of each dataset are visited, by the top 8 bits of the sample's id; empty: once.
/// Of n rows with weight w it is round(w * n) visits in each epoch, at least 1: each row floor(w) times, and for the
/// fraction others in each epoch, so that all rows come equally often over the epochs (with 0.5 each row once in two).
/// Two visits in one epoch share their dropout mask, which follows from seed, epoch and sample.
EpochPlan plan_epoch(const SampleSet& samples, const BatchOptions& options, int64_t epoch,
                     std::span<const double> source_weights = {});
/// Every sample once without shuffling, in order (of packs: of their first samples): evaluation.
EpochPlan plan_in_order(const SampleSet& samples, const BatchOptions& options);

/// The sizes of plan_epoch's result, at a fraction of its cost.
struct EpochShape {
  int64_t rows = 0, tokens = 0;  ///< rows as often as they are visited
  int64_t micro_batches = 0, steps = 0;
  int64_t longest_micro_batch = 0;  ///< tokens
  bool every_epoch_alike = false;   ///< all epochs have this shape
};
EpochShape epoch_shape(const SampleSet& samples, const BatchOptions& options, int64_t epoch,
                       std::span<const double> source_weights = {});

/// What packing gains, whether it is on or not; of the first epoch.
struct PackingStats {
  int64_t rows = 0, tokens = 0;
  int64_t packs = 0;  ///< of micro_batch_size * max_seq_length tokens
  double fill = 0;    ///< tokens over the room in all packs
  /// Share of padding among the positions of batches of micro_batch_size shuffled rows, padded to their longest.
  double padding_without_packing = 0;
  /// The same with a slot of max_seq_length positions for each row.
  double padding_of_slots = 0;
  double saved = 0;  ///< of the padding in such slots, the share that packs do not have
};
PackingStats packing_stats(const SampleSet& samples, const BatchOptions& options,
                           std::span<const double> source_weights = {});

Batch make_batch(const SampleSet& samples, const std::vector<int32_t>& which);
StepBatch make_step(const SampleSet& samples, const std::vector<std::vector<int32_t>>& micro);

}  // namespace bantam
