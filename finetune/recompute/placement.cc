// SPDX-License-Identifier: Apache-2.0
#include "placement.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace bantam {

namespace {

constexpr size_t kAlign = 64;

// One first-fit pass in the given order; returns the peak.
size_t first_fit(std::vector<Interval>& v, const std::vector<size_t>& order) {
  std::vector<size_t> by_offset;  // placed so far, ascending offset
  by_offset.reserve(order.size());
  size_t peak = 0;
  for (const size_t i : order) {
    Interval& me = v[i];
    size_t at = 0;
    for (const size_t j : by_offset) {
      const Interval& other = v[j];
      if (other.last < me.first || other.first > me.last) continue;
      if (other.offset >= at + me.bytes) break;
      at = std::max(at, (other.offset + other.bytes + kAlign - 1) / kAlign * kAlign);
    }
    me.offset = at;
    peak = std::max(peak, at + me.bytes);
    const auto pos =
        std::upper_bound(by_offset.begin(), by_offset.end(), at, [&](size_t o, size_t j) { return o < v[j].offset; });
    by_offset.insert(pos, i);
  }
  return peak;
}

// Greatest end of what is placed over each step; ranges are raised and asked for.
class Heights {
 public:
  explicit Heights(int steps) {
    while (size_ < steps) size_ *= 2;
    max_.assign(2 * static_cast<size_t>(size_), 0);
    raise_.assign(2 * static_cast<size_t>(size_), 0);
  }
  size_t over(int first, int last) const { return over(1, 0, size_ - 1, first, last); }
  void raise(int first, int last, size_t to) { raise(1, 0, size_ - 1, first, last, to); }

 private:
  size_t over(size_t node, int a, int b, int first, int last) const {
    if (last < a || b < first) return 0;
    if (first <= a && b <= last) return max_[node];
    const int mid = (a + b) / 2;
    return std::max(raise_[node],
                    std::max(over(2 * node, a, mid, first, last), over(2 * node + 1, mid + 1, b, first, last)));
  }
  void raise(size_t node, int a, int b, int first, int last, size_t to) {
    if (last < a || b < first) return;
    max_[node] = std::max(max_[node], to);
    if (first <= a && b <= last) {
      raise_[node] = std::max(raise_[node], to);
      return;
    }
    const int mid = (a + b) / 2;
    raise(2 * node, a, mid, first, last, to);
    raise(2 * node + 1, mid + 1, b, first, last, to);
  }
  int size_ = 1;
  std::vector<size_t> max_, raise_;  // of the node's range; given to all of it
};

size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

size_t place_stacked(std::vector<Interval>& v) {
  constexpr int kShort = 256;  // steps; what lives longer goes to the stack as well
  int steps = 1;
  for (const Interval& i : v) steps = std::max(steps, i.last + 1);
  std::vector<size_t> stacked, others;
  for (size_t i = 0; i < v.size(); ++i) (v[i].saved || v[i].last - v[i].first > kShort ? stacked : others).push_back(i);
  std::stable_sort(stacked.begin(), stacked.end(), [&](size_t a, size_t b) {
    return v[a].last != v[b].last ? v[a].last > v[b].last : v[a].first < v[b].first;
  });
  std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) { return v[a].bytes > v[b].bytes; });
  Heights heights(steps);
  size_t peak = 0;
  for (const size_t i : stacked) {
    v[i].offset = aligned(heights.over(v[i].first, v[i].last));
    heights.raise(v[i].first, v[i].last, v[i].offset + v[i].bytes);
    peak = std::max(peak, v[i].offset + v[i].bytes);
  }
  std::vector<std::vector<size_t>> at(static_cast<size_t>(steps));  // short ones placed so far, by step
  std::vector<size_t> around;
  for (const size_t i : others) {
    around.clear();
    for (int t = v[i].first; t <= v[i].last; ++t)
      around.insert(around.end(), at[static_cast<size_t>(t)].begin(), at[static_cast<size_t>(t)].end());
    std::sort(around.begin(), around.end(),
              [&](size_t a, size_t b) { return v[a].offset != v[b].offset ? v[a].offset < v[b].offset : a < b; });
    size_t offset = aligned(heights.over(v[i].first, v[i].last));
    for (const size_t j : around) {
      if (v[j].offset >= offset + v[i].bytes) break;
      offset = std::max(offset, aligned(v[j].offset + v[j].bytes));
    }
    v[i].offset = offset;
    peak = std::max(peak, offset + v[i].bytes);
    for (int t = v[i].first; t <= v[i].last; ++t) at[static_cast<size_t>(t)].push_back(i);
  }
  return peak;
}

}  // namespace

size_t live_peak(const std::vector<Interval>& intervals) {
  int steps = 0;
  for (const auto& i : intervals) steps = std::max(steps, i.last + 2);
  std::vector<int64_t> change(static_cast<size_t>(steps) + 1, 0);
  for (const auto& i : intervals) {
    change[static_cast<size_t>(i.first)] += static_cast<int64_t>(i.bytes);
    change[static_cast<size_t>(i.last) + 1] -= static_cast<int64_t>(i.bytes);
  }
  int64_t live = 0, peak = 0;
  for (const int64_t c : change) peak = std::max(peak, live += c);
  return static_cast<size_t>(peak);
}

size_t place(std::vector<Interval>& v) {
  if (v.empty()) return 0;
  const size_t lower = live_peak(v);
  constexpr size_t kFew = 2500;  // a search of orders takes n^2 steps for each
  std::vector<Interval> best = v;
  size_t best_peak = place_stacked(best);
  if (best_peak <= lower + lower / 200 || v.size() > kFew) {
    v = std::move(best);
    return best_peak;
  }
  std::vector<size_t> order(v.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto span = [&](size_t i) { return v[i].last - v[i].first; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (span(a) != span(b)) return span(a) > span(b);
    return v[a].bytes > v[b].bytes;
  });
  std::vector<Interval> trial = v;
  if (const size_t p = first_fit(trial, order); p < best_peak) {
    best_peak = p;
    best = trial;
  }
  std::vector<size_t> by_size = order;
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return v[a].bytes > v[b].bytes; });
  if (const size_t p = first_fit(trial, by_size); p < best_peak) {
    best_peak = p;
    best = trial;
    order = by_size;
  }
  // Whoever sticks out at the top goes first next time: the usual repair of greedy placements.
  trial = best;
  for (int round = 0; round < 60 && best_peak > lower; ++round) {
    const auto top = std::max_element(trial.begin(), trial.end(), [](const Interval& a, const Interval& b) {
      return a.offset + a.bytes < b.offset + b.bytes;
    });
    const auto who = static_cast<size_t>(top - trial.begin());
    order.erase(std::find(order.begin(), order.end(), who));
    order.insert(order.begin(), who);
    if (const size_t p = first_fit(trial, order); p < best_peak) {
      best_peak = p;
      best = trial;
    }
  }
  // Small problems have few values to hide a gap behind, and are cheap: try neighbours of the best order.
  std::vector<size_t> kept(v.size());
  std::iota(kept.begin(), kept.end(), size_t{0});
  std::stable_sort(kept.begin(), kept.end(), [&](size_t a, size_t b) { return best[a].offset < best[b].offset; });
  uint64_t random = 1;
  const auto draw = [&] {
    return static_cast<size_t>((random = random * 6364136223846793005u + 1442695040888963407u) >> 33) % kept.size();
  };
  const size_t tries = std::min<size_t>(600, 60'000'000 / (v.size() * v.size() + 1));
  for (size_t t = 0; t < tries && best_peak > lower + lower / 200; ++t) {
    order = kept;
    for (int moves = 0; moves < 1 + static_cast<int>(t % 3); ++moves) std::swap(order[draw()], order[draw()]);
    if (const size_t p = first_fit(trial, order); p <= best_peak) {
      kept = order;
      if (p < best_peak) best = trial;
      best_peak = p;
    }
  }
  v = std::move(best);
  return best_peak;
}

}  // namespace bantam
