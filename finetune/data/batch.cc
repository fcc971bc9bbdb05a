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

int64_t length_of(const Sample& s) {
  return static_cast<int64_t>(s.ids.size());
}

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

EpochPlan plan(const std::vector<Sample>& samples, const std::vector<int32_t>& order, const BatchOptions& o) {
  const int64_t capacity = capacity_of(o);
  std::vector<std::vector<int32_t>> micro;
  if (o.sample_packing) {
    Bins bins(order.size(), capacity);
    for (const int32_t i : order) {
      const size_t bin = bins.take(length_of(samples[static_cast<size_t>(i)]));
      if (bin >= micro.size()) micro.resize(bin + 1);
      micro[bin].push_back(i);
    }
  } else {
    const auto rows = static_cast<size_t>(o.micro_batch_size);
    for (size_t i = 0; i < order.size(); i += std::min(rows, order.size() - i)) {
      micro.emplace_back(order.begin() + static_cast<int64_t>(i),
                         order.begin() + static_cast<int64_t>(i + std::min(rows, order.size() - i)));
    }
  }
  EpochPlan out;
  for (size_t i = 0; i < micro.size(); ++i) {
    int64_t tokens = 0;
    for (const int32_t s : micro[i]) tokens += length_of(samples[static_cast<size_t>(s)]);
    out.longest_micro_batch = std::max(out.longest_micro_batch, tokens);
    if (i % static_cast<size_t>(o.gradient_accumulation_steps) == 0) out.steps.emplace_back();
    out.steps.back().push_back(std::move(micro[i]));
  }
  return out;
}

std::vector<int32_t> all_of(const std::vector<Sample>& samples, const BatchOptions& o) {
  if (samples.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(ErrorCode::data, str(samples.size(), " samples, at most 2,147,483,647 are possible"));
  }
  for (const Sample& s : samples) {
    if (length_of(s) > o.max_seq_length || s.ids.empty() || s.trained.size() != s.ids.size()) {
      throw Error(ErrorCode::internal, str("sample ", s.id, " has ", s.ids.size(), " ids and ", s.trained.size(),
                                           " marks, expected as many of each, 1 to ", o.max_seq_length));
    }
  }
  std::vector<int32_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The other steps keep their order. Of equals the first moves.
void longest_first(const std::vector<Sample>& samples, EpochPlan& plan) {
  size_t step = 0, micro = 0;
  int64_t most = -1;
  for (size_t s = 0; s < plan.steps.size(); ++s)
    for (size_t m = 0; m < plan.steps[s].size(); ++m) {
      int64_t tokens = 0;
      for (const int32_t i : plan.steps[s][m]) tokens += length_of(samples[static_cast<size_t>(i)]);
      if (tokens > most) most = tokens, step = s, micro = m;
    }
  if (plan.steps.empty()) return;
  const auto to_front = [](auto& list, size_t i) {
    const auto begin = list.begin();
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(i), begin + static_cast<std::ptrdiff_t>(i) + 1);
  };
  to_front(plan.steps[step], micro);
  to_front(plan.steps, step);
}

}  // namespace

double Batch::total_weight() const {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

EpochPlan plan_epoch(const std::vector<Sample>& samples, const BatchOptions& options, int64_t epoch) {
  std::vector<int32_t> order = all_of(samples, options);
  SplitMix64 random(mix64(mix64(options.seed) ^ static_cast<uint64_t>(epoch)));
  shuffle(order, random);
  EpochPlan out = plan(samples, order, options);
  if (epoch == 0 && options.longest_batch_first) longest_first(samples, out);
  return out;
}

EpochPlan plan_in_order(const std::vector<Sample>& samples, const BatchOptions& options) {
  return plan(samples, all_of(samples, options), options);
}

Batch make_batch(const std::vector<Sample>& samples, const std::vector<int32_t>& which) {
  Batch b;
  size_t total = 0;
  for (const int32_t w : which) {
    if (w < 0 || static_cast<size_t>(w) >= samples.size()) {
      throw Error(ErrorCode::internal, str("sample ", w, " of ", samples.size()));
    }
    total += samples[static_cast<size_t>(w)].ids.size();
  }
  if (total > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(ErrorCode::internal, str("a micro-batch of ", total, " tokens"));
  }
  b.ids.reserve(total), b.labels.reserve(total), b.weights.reserve(total), b.positions.reserve(total);
  b.cu_seqlens.push_back(0);
  for (const int32_t w : which) {
    const Sample& s = samples[static_cast<size_t>(w)];
    const size_t n = s.ids.size();
    for (size_t i = 0; i < n; ++i) {
      // The last token of a sample predicts nothing: the next one belongs to somebody else.
      const bool target = i + 1 < n && s.trained[i + 1] != 0;
      b.ids.push_back(s.ids[i]);
      b.labels.push_back(target ? s.ids[i + 1] : kIgnoreLabel);
      b.weights.push_back(target ? 1.0f : 0.0f);
      b.positions.push_back(static_cast<int32_t>(i));
    }
    b.cu_seqlens.push_back(static_cast<int32_t>(b.ids.size()));
    b.sample_ids.push_back(s.id);
  }
  return b;
}

StepBatch make_step(const std::vector<Sample>& samples, const std::vector<std::vector<int32_t>>& micro) {
  StepBatch out;
  for (const auto& which : micro) {
    out.micro.push_back(make_batch(samples, which));
    out.total_weight += out.micro.back().total_weight();
  }
  return out;
}

}  // namespace bantam
