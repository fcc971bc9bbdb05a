// SPDX-License-Identifier: Apache-2.0
// How full packs are, by method and distribution of lengths, and how long planning takes.
//   bantam_packing_bench [rows [max_seq_length [micro_batch_size]]]
// TRL packs best-fit decreasing within map batches of 1,000 rows, Axolotl first-fit decreasing within groups of 100,000
// and at most 200 rows to a pack, LLaMA-Factory fills one pack after the other with the longest row that fits within
// batches of 1,000. "between": which share of the variance of lengths lies between packs and not inside them; where
// rows are thrown together at random it is about packs / rows.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "finetune/data/batch.h"
#include "finetune/data/packing.h"
#include "finetune/data/samples/sample_set.h"

using namespace bantam;

namespace {

using Lengths = std::vector<int32_t>;
using Packs = std::vector<std::vector<int32_t>>;  // lengths

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

double uniform(SplitMix64& r) {
  return (static_cast<double>(r.next() >> 11) + 0.5) * 0x1.0p-53;
}
double normal(SplitMix64& r) {
  const double a = uniform(r), b = uniform(r);
  return std::sqrt(-2 * std::log(a)) * std::cos(6.283185307179586 * b);
}

Lengths draw(size_t n, int64_t longest, const std::function<double(SplitMix64&)>& share) {
  SplitMix64 random(n);
  Lengths out(n);
  const auto most = static_cast<double>(longest);
  for (auto& l : out) l = static_cast<int32_t>(std::clamp(share(random) * most, 1.0, most));
  return out;
}

// First fit by a tree of the largest room in each range of packs; at most `rows` to a pack.
Packs first_fit(const Lengths& lengths, int64_t capacity, size_t rows) {
  size_t leaves = 1;
  while (leaves < lengths.size()) leaves *= 2;
  std::vector<int64_t> room(2 * leaves, capacity);
  Packs packs;
  for (const int32_t n : lengths) {
    size_t node = 1;
    while (node < leaves) node = room[2 * node] >= n ? 2 * node : 2 * node + 1;
    const size_t pack = node - leaves;
    if (pack >= packs.size()) packs.resize(pack + 1);
    packs[pack].push_back(n);
    room[node] = packs[pack].size() == rows ? -1 : room[node] - n;
    for (node /= 2; node > 0; node /= 2) room[node] = std::max(room[2 * node], room[2 * node + 1]);
  }
  return packs;
}

Packs best_fit(const Lengths& lengths, int64_t capacity) {
  Packs packs;
  std::multimap<int64_t, size_t> by_room;
  for (const int32_t n : lengths) {
    auto at = by_room.lower_bound(n);
    if (at == by_room.end()) {
      at = by_room.emplace(capacity, packs.size());
      packs.emplace_back();
    }
    const auto [room, pack] = *at;
    by_room.erase(at);
    packs[pack].push_back(n);
    by_room.emplace(room - n, pack);
  }
  return packs;
}

Packs knapsacks(const Lengths& lengths, int64_t capacity) {
  Packs packs;
  std::multiset<int32_t> left(lengths.begin(), lengths.end());
  while (!left.empty()) {
    auto& pack = packs.emplace_back();
    for (int64_t room = capacity;;) {
      auto at = left.upper_bound(static_cast<int32_t>(std::min<int64_t>(room, INT32_MAX)));
      if (at == left.begin()) break;
      --at;
      pack.push_back(*at);
      room -= *at;
      left.erase(at);
    }
  }
  return packs;
}

Packs in_groups(const Lengths& lengths, size_t group, bool sort, const std::function<Packs(const Lengths&)>& pack) {
  Packs out;
  for (size_t i = 0; i < lengths.size(); i += group) {
    Lengths part(lengths.begin() + static_cast<int64_t>(i),
                 lengths.begin() + static_cast<int64_t>(std::min(i + group, lengths.size())));
    if (sort) std::sort(part.rbegin(), part.rend());
    for (auto& p : pack(part)) out.push_back(std::move(p));
  }
  return out;
}

Packs ours(const Lengths& lengths, int64_t capacity) {
  std::vector<int32_t> rows(lengths.size());
  std::iota(rows.begin(), rows.end(), 0);
  SplitMix64 random(1);
  const auto starts = pack_rows(rows, lengths, capacity, &random);
  Packs out;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    auto& p = out.emplace_back();
    for (int64_t k = starts[i]; k < starts[i + 1]; ++k)
      p.push_back(lengths[static_cast<size_t>(rows[static_cast<size_t>(k)])]);
  }
  return out;
}

struct Figures {
  double fill = 0, between = 0;
};

Figures figures(const Packs& packs, int64_t capacity) {
  double tokens = 0, squares = 0, between = 0, rows = 0;
  for (const auto& p : packs) {
    double sum = 0;
    for (const int32_t n : p) sum += n, squares += static_cast<double>(n) * n;
    tokens += sum;
    rows += static_cast<double>(p.size());
    between += sum * sum / static_cast<double>(p.size());
  }
  const double mean = tokens * tokens / rows;
  return {tokens / (static_cast<double>(packs.size()) * static_cast<double>(capacity)),
          squares > mean ? (between - mean) / (squares - mean) : 0};
}

int64_t number(int argc, char** argv, int i, int64_t otherwise) {
  return argc > i ? std::max<int64_t>(1, std::atoll(argv[i])) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const auto rows = static_cast<size_t>(number(argc, argv, 1, 100000));
  const int64_t longest = number(argc, argv, 2, 2048), micro = number(argc, argv, 3, 1), capacity = longest * micro;
  const std::vector<std::pair<std::string, Lengths>> sets{
      {"uniform", draw(rows, longest, [](SplitMix64& r) { return uniform(r); })},
      {"log-normal, median 1/8", draw(rows, longest, [](SplitMix64& r) { return 0.125 * std::exp(0.9 * normal(r)); })},
      {"log-normal, median 1/3", draw(rows, longest, [](SplitMix64& r) { return 0.33 * std::exp(0.6 * normal(r)); })},
      {"95 % short, 5 % long",
       draw(rows, longest,
            [](SplitMix64& r) { return uniform(r) < 0.05 ? 0.6 + 0.4 * uniform(r) : 0.08 * uniform(r); })},
      {"all over one third", draw(rows, longest, [](SplitMix64& r) { return 0.34 + 0.4 * uniform(r); })},
  };
  std::printf("%zu rows, packs of %lld x %lld tokens: share that is filled, in %% (between, in %%)\n", rows,
              static_cast<long long>(micro), static_cast<long long>(longest));
  std::printf("%-24s %13s %13s %13s %13s %13s %13s %9s\n", "lengths", "first fit", "TRL", "Axolotl", "LLaMA-Factory",
              "BFD over all", "bantam", "seconds");
  for (const auto& [name, lengths] : sets) {
    const auto best = [&](const Lengths& l) { return best_fit(l, capacity); };
    const auto t = std::chrono::steady_clock::now();
    const Packs bantam_packs = ours(lengths, capacity);
    const double seconds = seconds_since(t);
    std::printf("%-24s", name.c_str());
    for (const Packs& p :
         {first_fit(lengths, capacity, rows), in_groups(lengths, 1000, true, best),
          in_groups(lengths, 100000, true, [&](const Lengths& l) { return first_fit(l, capacity, 200); }),
          in_groups(lengths, 1000, false, [&](const Lengths& l) { return knapsacks(l, capacity); }),
          in_groups(lengths, rows, true, best), bantam_packs}) {
      const Figures f = figures(p, capacity);
      std::printf(" %6.2f (%4.1f)", 100 * f.fill, 100 * f.between);
    }
    std::printf(" %9.3f\n", seconds);
  }
  return 0;
}
