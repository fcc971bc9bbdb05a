// SPDX-License-Identifier: Apache-2.0
#include "bpe_merges.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

namespace bantam {
namespace {

// Up to here, looking at all pairs again costs less than a queue.
constexpr size_t kShortWord = 48;

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t spread(uint64_t key) {
  return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20);
}

}  // namespace

BpeMerges::BpeMerges(size_t expected) {
  size_t n = 16;
  while (n < 2 * expected) n *= 2;
  slots_.resize(n);
}

void BpeMerges::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t i = spread(key) & (slots_.size() - 1);
  while (slots_[i].key != ~uint64_t{0} && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {key, merge};
}

BpeMerges::Merge BpeMerges::find(int32_t left, int32_t right) const {
  const uint64_t key = key_of(left, right);
  for (size_t i = spread(key) & (slots_.size() - 1); slots_[i].key != ~uint64_t{0}; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].key == key) return slots_[i].merge;
  }
  return {};
}

size_t BpeMerges::apply(int32_t* ids, size_t n) const {
  if (n < 2) return n;
  return n <= kShortWord ? apply_short<false>(ids, n, nullptr) : apply_long<false>(ids, n, nullptr);
}

size_t BpeMerges::apply(int32_t* ids, size_t n, TextSpan* spans) const {
  if (n < 2) return n;
  return n <= kShortWord ? apply_short<true>(ids, n, spans) : apply_long<true>(ids, n, spans);
}

template <bool with_spans>
size_t BpeMerges::apply_short(int32_t* ids, size_t n, [[maybe_unused]] TextSpan* spans) const {
  Merge pairs[kShortWord];
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = find(ids[i], ids[i + 1]);
  for (;;) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (pairs[i].rank >= 0 && (best == n || pairs[i].rank < pairs[best].rank)) best = i;
    }
    if (best == n) return n;
    ids[best] = pairs[best].result;
    if constexpr (with_spans) {
      spans[best].end = spans[best + 1].end;
      std::copy(spans + best + 2, spans + n, spans + best + 1);
    }
    for (size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --n;
    if (best > 0) pairs[best - 1] = find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = find(ids[best], ids[best + 1]);
  }
}

template <bool with_spans>
size_t BpeMerges::apply_long(int32_t* ids, size_t count, [[maybe_unused]] TextSpan* spans) const {
  // A list of symbols and a queue of pairs; an entry is stale when the pair at its place no longer gives its result.
  struct Symbol {
    int32_t id;
    int64_t before, after;
  };
  using Entry = std::tuple<int32_t, int64_t, int32_t>;  // rank, place, result
  const auto n = static_cast<int64_t>(count);
  std::vector<Symbol> list(count);
  const auto at = [&](int64_t i) -> Symbol& { return list[static_cast<size_t>(i)]; };
  std::vector<Entry> start;
  start.reserve(count);
  for (int64_t i = 0; i < n; ++i) at(i) = {ids[i], i - 1, i + 1 < n ? i + 1 : -1};
  for (int64_t i = 0; i + 1 < n; ++i) {
    const Merge m = find(at(i).id, at(i + 1).id);
    if (m.rank >= 0) start.emplace_back(m.rank, i, m.result);
  }
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue(std::greater<>{}, std::move(start));
  const auto push = [&](int64_t i) {
    const int64_t j = i < 0 ? -1 : at(i).after;
    if (j < 0) return;
    const Merge m = find(at(i).id, at(j).id);
    if (m.rank >= 0) queue.emplace(m.rank, i, m.result);
  };
  while (!queue.empty()) {
    const auto [rank, i, result] = queue.top();
    queue.pop();
    const int64_t j = at(i).id < 0 ? -1 : at(i).after;
    if (j < 0 || find(at(i).id, at(j).id).result != result) continue;
    at(i).id = result;
    at(i).after = at(j).after;
    if (at(j).after >= 0) at(at(j).after).before = i;
    at(j).id = -1;
    push(at(i).before);
    push(i);
  }
  size_t left = 0;
  for (int64_t i = 0; i >= 0; i = at(i).after) {
    if constexpr (with_spans) {
      const int64_t next = at(i).after;
      spans[left] = {spans[i].begin, spans[(next < 0 ? n : next) - 1].end};
    }
    ids[left++] = at(i).id;
  }
  return left;
}

}  // namespace bantam
