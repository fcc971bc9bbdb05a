// SPDX-License-Identifier: Apache-2.0
#include "batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "../../kernels/cross_entropy.h"
#include "../../kernels/error.h"
#include "packing.h"
#include "shuffle.h"

namespace bantam {
namespace {

int64_t capacity_of(const BatchOptions& o) {
  if (o.micro_batch_size < 1 || o.gradient_accumulation_steps < 1 || o.max_seq_length < 1) {
    throw Error(ErrorCode::usage,
                str("micro_batch_size ", o.micro_batch_size, ", gradient_accumulation_steps ",
                    o.gradient_accumulation_steps, ", max_seq_length ", o.max_seq_length, ": each must be at least 1"));
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (o.max_seq_length > kMost / o.micro_batch_size) {
    throw Error(ErrorCode::usage, str("micro_batch_size ", o.micro_batch_size, " x max_seq_length ", o.max_seq_length,
                                      " tokens in a micro-batch, at most ", kMost, " are possible"));
  }
  return o.micro_batch_size * o.max_seq_length;
}

// The lengths, checked.
std::vector<int32_t> lengths_of(const SampleSet& samples, const BatchOptions& o) {
  if (samples.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(ErrorCode::data, str(samples.size(), " samples, at most 2,147,483,647 are possible"));
  }
  std::vector<int32_t> out(samples.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t n = samples.length(i);
    if (n < 1 || n > o.max_seq_length) {
      throw Error(ErrorCode::internal,
                  str("sample ", samples.id(i), " has ", n, " tokens, expected 1 to ", o.max_seq_length));
    }
    out[i] = static_cast<int32_t>(n);
  }
  return out;
}

// Where each micro-batch of `order` starts, which is reordered where rows are packed.
std::vector<int64_t> micro_batches(std::vector<int32_t>& order, const std::vector<int32_t>& lengths,
                                   const BatchOptions& o, SplitMix64* random) {
  if (o.sample_packing) return pack_rows(order, lengths, capacity_of(o), random);
  std::vector<int64_t> starts{0};
  const auto n = static_cast<int64_t>(order.size());
  for (int64_t i = 0; i < n; i = starts.back()) starts.push_back(std::min(n, i + o.micro_batch_size));
  return starts;
}

// The other micro-batches and steps keep their order. Of equals the first moves.
void longest_first(EpochPlan& plan, int64_t longest) {
  const auto step = static_cast<int64_t>(std::upper_bound(plan.step_starts.begin(), plan.step_starts.end(), longest) -
                                         plan.step_starts.begin() - 1);
  const int64_t first = plan.step_starts[static_cast<size_t>(step)];
  const int64_t last = plan.step_starts[static_cast<size_t>(step) + 1];
  std::vector<int64_t> micros(static_cast<size_t>(plan.micro_batches()));
  std::iota(micros.begin(), micros.end(), 0);
  std::rotate(micros.begin() + first, micros.begin() + longest, micros.begin() + longest + 1);
  std::rotate(micros.begin(), micros.begin() + first, micros.begin() + last);
  EpochPlan out;
  out.longest_micro_batch = plan.longest_micro_batch;
  out.order.reserve(plan.order.size());
  out.micro_starts.reserve(plan.micro_starts.size());
  for (const int64_t m : micros) {
    const auto samples = plan.micro_batch(m);
    out.order.insert(out.order.end(), samples.begin(), samples.end());
    out.micro_starts.push_back(static_cast<int64_t>(out.order.size()));
  }
  out.step_starts = std::move(plan.step_starts);
  for (int64_t s = step; s > 0; --s)  // the steps before it move on by its micro-batches
    out.step_starts[static_cast<size_t>(s)] = out.step_starts[static_cast<size_t>(s) - 1] + last - first;
  plan = std::move(out);
}

EpochPlan plan(std::vector<int32_t> order, const std::vector<int32_t>& lengths, const BatchOptions& o, bool longest,
               SplitMix64* random) {
  EpochPlan out;
  out.micro_starts = micro_batches(order, lengths, o, random);
  out.order = std::move(order);
  for (int64_t i = 0; i < out.micro_batches(); i = out.step_starts.back())
    out.step_starts.push_back(std::min(out.micro_batches(), i + o.gradient_accumulation_steps));
  int64_t which = 0;
  for (int64_t m = 0; m < out.micro_batches(); ++m) {
    int64_t tokens = 0;
    for (const int32_t s : out.micro_batch(m)) tokens += lengths[static_cast<size_t>(s)];
    if (tokens > out.longest_micro_batch) out.longest_micro_batch = tokens, which = m;
  }
  if (longest && out.micro_batches() > 0) longest_first(out, which);
  return out;
}

bool whole_number(double w) {
  return w == std::floor(w);
}

// How often each sample is visited in an epoch: whole copies, and of the fraction a stretch of a walk around a fixed
// order of the source's rows, so that over the epochs each has its turn equally often.
std::vector<int32_t> visits(const SampleSet& samples, std::span<const double> weights, uint64_t seed, int64_t epoch) {
  std::vector<int32_t> times(samples.size(), 1);
  if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 1; })) return times;
  std::vector<std::vector<int32_t>> rows(weights.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint64_t source = samples.id(i) >> 56;
    if (source >= weights.size())
      throw Error(ErrorCode::internal, str("sample ", i, " is of source ", source, " of ", weights.size()));
    rows[source].push_back(static_cast<int32_t>(i));
  }
  for (size_t source = 0; source < weights.size(); ++source) {
    const double w = weights[source];
    auto& list = rows[source];
    if (!(w > 0) || !std::isfinite(w))
      throw Error(ErrorCode::usage, str("dataset ", source + 1, ": weight ", w, ", expected a number above 0"));
    const auto n = static_cast<int64_t>(list.size());
    if (n == 0) continue;
    if (w * static_cast<double>(n) > std::numeric_limits<int32_t>::max())
      throw Error(ErrorCode::usage, str("dataset ", source + 1, ": weight ", w, " of ", n,
                                        " rows, at most 2,147,483,647 visits in an epoch are possible"));
    const int64_t wanted = std::max<int64_t>(1, std::llround(w * static_cast<double>(n)));
    for (const int32_t i : list) times[static_cast<size_t>(i)] = static_cast<int32_t>(wanted / n);
    const int64_t rest = wanted % n;
    if (rest == 0) continue;
    SplitMix64 random(mix64(mix64(mix64(seed) ^ 0x736F75726365ull) ^ source));  // apart from the epochs' streams
    shuffle(list, random);
    const int64_t from = epoch % n * rest % n;
    for (int64_t k = 0; k < rest; ++k) ++times[static_cast<size_t>(list[static_cast<size_t>((from + k) % n)])];
  }
  return times;
}

// Each sample as often as it is visited, in the order of the set.
std::vector<int32_t> rows_of_epoch(const SampleSet& samples, const BatchOptions& o, std::span<const double> weights,
                                   int64_t epoch) {
  const std::vector<int32_t> times = visits(samples, weights, o.seed, epoch);
  int64_t total = 0;
  for (const int32_t n : times) total += n;
  if (total > std::numeric_limits<int32_t>::max())
    throw Error(ErrorCode::usage, str(total, " rows in an epoch, at most 2,147,483,647 are possible"),
                "lower the weights of the datasets");
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(total));
  for (size_t i = 0; i < times.size(); ++i)
    order.insert(order.end(), static_cast<size_t>(times[i]), static_cast<int32_t>(i));
  return order;
}

SplitMix64 stream_of(const BatchOptions& o, int64_t epoch) {
  return SplitMix64(mix64(mix64(o.seed) ^ static_cast<uint64_t>(epoch)));
}

int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

}  // namespace

double Batch::total_weight() const {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

std::span<const int32_t> EpochPlan::micro_batch(int64_t i) const {
  const int64_t begin = micro_starts[static_cast<size_t>(i)], end = micro_starts[static_cast<size_t>(i) + 1];
  return std::span(order).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

std::vector<std::vector<int32_t>> EpochPlan::step(int64_t i) const {
  std::vector<std::vector<int32_t>> out;
  for (int64_t m = step_starts[static_cast<size_t>(i)]; m < step_starts[static_cast<size_t>(i) + 1]; ++m) {
    const auto samples = micro_batch(m);
    out.emplace_back(samples.begin(), samples.end());
  }
  return out;
}

EpochPlan plan_epoch(const SampleSet& samples, const BatchOptions& options, int64_t epoch,
                     std::span<const double> source_weights) {
  capacity_of(options);
  const std::vector<int32_t> lengths = lengths_of(samples, options);
  std::vector<int32_t> order = rows_of_epoch(samples, options, source_weights, epoch);
  SplitMix64 random = stream_of(options, epoch);
  shuffle(order, random);
  return plan(std::move(order), lengths, options, epoch == 0 && options.longest_batch_first, &random);
}

EpochPlan plan_in_order(const SampleSet& samples, const BatchOptions& options) {
  capacity_of(options);
  std::vector<int32_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  return plan(std::move(order), lengths_of(samples, options), options, false, nullptr);
}

EpochShape epoch_shape(const SampleSet& samples, const BatchOptions& options, int64_t epoch,
                       std::span<const double> source_weights) {
  const int64_t capacity = capacity_of(options);
  const std::vector<int32_t> lengths = lengths_of(samples, options);
  std::vector<int32_t> order = rows_of_epoch(samples, options, source_weights, epoch);
  EpochShape s;
  s.rows = static_cast<int64_t>(order.size());
  for (const int32_t i : order) s.tokens += lengths[static_cast<size_t>(i)];
  s.every_epoch_alike = (options.sample_packing || options.micro_batch_size == 1) &&
                        std::all_of(source_weights.begin(), source_weights.end(), whole_number);
  if (options.sample_packing) {
    for (const PackShape& p : pack_shapes(count_lengths(order, lengths), capacity)) {
      s.micro_batches += p.count;
      if (p.count > 0) s.longest_micro_batch = std::max(s.longest_micro_batch, p.tokens);
    }
  } else {
    SplitMix64 random = stream_of(options, epoch);
    shuffle(order, random);
    s.micro_batches = divide_up(s.rows, options.micro_batch_size);
    int64_t tokens = 0;
    for (int64_t i = 0; i < s.rows; ++i) {
      if (i % options.micro_batch_size == 0) tokens = 0;
      tokens += lengths[static_cast<size_t>(order[static_cast<size_t>(i)])];
      s.longest_micro_batch = std::max(s.longest_micro_batch, tokens);
    }
  }
  s.steps = divide_up(s.micro_batches, options.gradient_accumulation_steps);
  return s;
}

PackingStats packing_stats(const SampleSet& samples, const BatchOptions& options,
                           std::span<const double> source_weights) {
  const int64_t capacity = capacity_of(options);
  BatchOptions packed = options, rows = options;
  packed.sample_packing = true;
  rows.sample_packing = false;
  rows.longest_batch_first = false;
  const EpochShape shape = epoch_shape(samples, packed, 0, source_weights);
  PackingStats s{shape.rows, shape.tokens, shape.micro_batches};
  if (shape.rows == 0) return s;
  const EpochPlan batches = plan_epoch(samples, rows, 0, source_weights);
  int64_t padded = 0;
  for (int64_t m = 0; m < batches.micro_batches(); ++m) {
    int64_t longest = 0;
    const auto which = batches.micro_batch(m);
    for (const int32_t i : which) longest = std::max(longest, samples.length(static_cast<size_t>(i)));
    padded += longest * static_cast<int64_t>(which.size());
  }
  const auto tokens = static_cast<double>(shape.tokens);
  const double slots = static_cast<double>(shape.rows) * static_cast<double>(options.max_seq_length);
  const double room = static_cast<double>(shape.micro_batches) * static_cast<double>(capacity);
  s.fill = tokens / room;
  s.padding_without_packing = 1 - tokens / static_cast<double>(padded);
  s.padding_of_slots = 1 - tokens / slots;
  s.saved = slots > tokens ? 1 - (room - tokens) / (slots - tokens) : 0;
  return s;
}

Batch make_batch(const SampleSet& samples, const std::vector<int32_t>& which) {
  Batch b;
  int64_t total = 0;
  for (const int32_t w : which) {
    if (w < 0 || static_cast<size_t>(w) >= samples.size()) {
      throw Error(ErrorCode::internal, str("sample ", w, " of ", samples.size()));
    }
    total += samples.length(static_cast<size_t>(w));
  }
  if (total > std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorCode::internal, str("a micro-batch of ", total, " tokens"));
  }
  const auto n_total = static_cast<size_t>(total);
  b.ids.reserve(n_total), b.labels.reserve(n_total), b.weights.reserve(n_total), b.positions.reserve(n_total);
  b.cu_seqlens.push_back(0);
  for (const int32_t w : which) {
    const SampleView s = samples[static_cast<size_t>(w)];
    const size_t n = s.ids.size();
    for (size_t i = 0; i < n; ++i) {
      // The last token of a sample predicts nothing: the next one belongs to somebody else.
      const bool target = i + 1 < n && s.trained[i + 1] != 0;
      b.ids.push_back(s.ids[i]);
      b.labels.push_back(target ? s.ids[i + 1] : kIgnoreLabel);
      b.weights.push_back(!target ? 0.0f : s.weights.empty() ? 1.0f : s.weights[i + 1]);
      b.positions.push_back(static_cast<int32_t>(i));
    }
    b.cu_seqlens.push_back(static_cast<int32_t>(b.ids.size()));
    b.sample_ids.push_back(s.id);
  }
  return b;
}

StepBatch make_step(const SampleSet& samples, const std::vector<std::vector<int32_t>>& micro) {
  StepBatch out;
  for (const auto& which : micro) {
    out.micro.push_back(make_batch(samples, which));
    out.total_weight += out.micro.back().total_weight();
  }
  return out;
}

}  // namespace bantam
