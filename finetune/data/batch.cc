// SPDX-License-Identifier: Apache-2.0
#include "batch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "../../kernels/cross_entropy.h"
#include "../../kernels/error.h"
#include "shuffle.h"

namespace bantam {
namespace {

// First fit in O(log n) per sample: a tree of the largest room in each range of bins.
class Bins {
 public:
  Bins(size_t most, int64_t capacity) {
    while (leaves_ < most) leaves_ *= 2;
    room_.assign(2 * leaves_, capacity);
  }
  /// The first bin with at least `length` room; takes it.
  size_t take(int64_t length) {
    size_t node = 1;
    while (node < leaves_) node = room_[2 * node] >= length ? 2 * node : 2 * node + 1;
    room_[node] -= length;
    const size_t bin = node - leaves_;
    for (node /= 2; node > 0; node /= 2) room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
    return bin;
  }

 private:
  size_t leaves_ = 1;
  std::vector<int64_t> room_;
};

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

using Micros = std::vector<std::vector<int32_t>>;

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

// Micro-batches [start, end) of `order`.
std::vector<int64_t> fill(std::vector<int32_t>& order, const std::vector<int32_t>& lengths, const BatchOptions& o) {
  const int64_t capacity = capacity_of(o);
  std::vector<int64_t> starts{0};
  if (o.sample_packing) {
    Bins bins(order.size(), capacity);
    Micros micro;
    for (const int32_t i : order) {
      const size_t bin = bins.take(lengths[static_cast<size_t>(i)]);
      if (bin >= micro.size()) micro.resize(bin + 1);
      micro[bin].push_back(i);
    }
    order.clear();
    for (const auto& m : micro) {
      order.insert(order.end(), m.begin(), m.end());
      starts.push_back(static_cast<int64_t>(order.size()));
    }
  } else {
    const auto n = static_cast<int64_t>(order.size());
    for (int64_t i = 0; i < n; i = starts.back()) starts.push_back(std::min(n, i + o.micro_batch_size));
  }
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

EpochPlan plan(std::vector<int32_t> order, const std::vector<int32_t>& lengths, const BatchOptions& o, bool longest) {
  EpochPlan out;
  out.micro_starts = fill(order, lengths, o);
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

std::vector<int32_t> all_of(size_t n) {
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
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

EpochPlan plan_epoch(const SampleSet& samples, const BatchOptions& options, int64_t epoch) {
  capacity_of(options);
  const std::vector<int32_t> lengths = lengths_of(samples, options);
  std::vector<int32_t> order = all_of(lengths.size());
  SplitMix64 random(mix64(mix64(options.seed) ^ static_cast<uint64_t>(epoch)));
  shuffle(order, random);
  return plan(std::move(order), lengths, options, epoch == 0 && options.longest_batch_first);
}

EpochPlan plan_in_order(const SampleSet& samples, const BatchOptions& options) {
  capacity_of(options);
  const std::vector<int32_t> lengths = lengths_of(samples, options);
  return plan(all_of(lengths.size()), lengths, options, false);
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
