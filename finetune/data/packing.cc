// SPDX-License-Identifier: Apache-2.0
#include "packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "../../kernels/error.h"

namespace bantam {
namespace {

// Packs by the room that is left in them. All packs of one shape are handled at once.
class Rooms {
 public:
  explicit Rooms(int64_t capacity) : capacity_(capacity) {}

  void open(int64_t packs) { add({-1, 0, 0, 0, packs}); }

  // Best fit: each row goes where the least room is, into a new pack where there is none. A pack that took one has less
  // room than any other that could take one, so it goes on taking them: as if row by row.
  void fill(int32_t length, int64_t rows) {
    while (rows > 0) {
      const auto found = by_room_.lower_bound(length);
      if (found == by_room_.end()) {
        open((rows - 1) / (capacity_ / length) + 1);
        continue;
      }
      const int64_t most = found->first / length, packs = std::min(last(found).count, rows / most);
      if (packs > 0)
        put(found, length, most, packs);
      else
        put(found, length, rows, 1);
      rows -= packs > 0 ? packs * most : rows;
    }
  }

  // Each row goes where the most room is. False: there is not enough.
  bool deal(int32_t length, int64_t rows) {
    while (rows > 0) {
      if (by_room_.empty() || by_room_.rbegin()->first < length) return false;
      const auto found = std::prev(by_room_.end());
      const int64_t packs = std::min(last(found).count, rows);
      put(found, length, 1, packs);
      rows -= packs;
    }
    return true;
  }

  int64_t packs() const {
    int64_t n = 0;
    for (const PackShape& s : shapes_) n += s.times > 0 ? s.count : 0;
    return n;
  }

  std::vector<PackShape> shapes() && {
    for (PackShape& s : shapes_)
      if (s.times == 0) s.count = 0;  // opened and not needed
    return std::move(shapes_);
  }

 private:
  using ByRoom = std::map<int64_t, std::vector<int32_t>>;  // the shapes with that much room

  PackShape& last(ByRoom::iterator at) { return shapes_[static_cast<size_t>(at->second.back())]; }

  // Gives `times` rows to each of `packs` packs of the last shape with that room.
  void put(ByRoom::iterator at, int32_t length, int64_t times, int64_t packs) {
    const int32_t parent = at->second.back();
    PackShape s = shapes_[static_cast<size_t>(parent)];
    const bool all = packs == s.count;
    if (all) {
      at->second.pop_back();
      if (at->second.empty()) by_room_.erase(at);
    }
    s.tokens += times * length;
    if (all && s.length == length && !is_parent_[static_cast<size_t>(parent)]) {
      s.times += static_cast<int32_t>(times);
      shapes_[static_cast<size_t>(parent)] = s;
      list(parent);
      return;
    }
    shapes_[static_cast<size_t>(parent)].count -= packs;
    is_parent_[static_cast<size_t>(parent)] = true;
    add({parent, length, static_cast<int32_t>(times), s.tokens, packs});
  }

  void add(const PackShape& s) {
    shapes_.push_back(s);
    is_parent_.push_back(false);
    list(static_cast<int32_t>(shapes_.size()) - 1);
  }

  void list(int32_t shape) {
    const int64_t room = capacity_ - shapes_[static_cast<size_t>(shape)].tokens;
    if (room > 0) by_room_[room].push_back(shape);
  }

  std::vector<PackShape> shapes_;
  std::vector<bool> is_parent_;
  ByRoom by_room_;
  int64_t capacity_;
};

// Rows over `cut` tokens are dealt out to `packs` packs, the others fill what is left. False: that needs more packs.
bool deal_and_fill(std::span<const int64_t> counts, size_t cut, int64_t packs, Rooms& rooms) {
  rooms.open(packs);
  size_t n = counts.size() - 1;
  for (; n > cut; --n)
    if (counts[n] > 0 && !rooms.deal(static_cast<int32_t>(n), counts[n])) return false;
  for (; n > 0; --n)
    if (counts[n] > 0) rooms.fill(static_cast<int32_t>(n), counts[n]);
  return rooms.packs() <= packs;
}

}  // namespace

std::vector<PackShape> pack_shapes(std::span<const int64_t> counts, int64_t capacity) {
  Rooms tight(capacity);
  int64_t tokens = 0;
  for (size_t n = counts.size(); n-- > 1;) {
    if (counts[n] == 0) continue;
    if (static_cast<int64_t>(n) > capacity)
      throw Error(ErrorCode::internal, str("a row of ", n, " tokens for packs of ", capacity));
    tight.fill(static_cast<int32_t>(n), counts[n]);
    tokens += static_cast<int64_t>(n) * counts[n];
  }
  const int64_t packs = tight.packs();
  if (packs < 2) return std::move(tight).shapes();
  // The share of the tokens, from the shortest rows, that fills: doubled until it does.
  for (const int64_t more : {int64_t{0}, packs / 1000}) {
    size_t last_cut = counts.size();
    for (int64_t part = 1024; part > 1; part /= 2) {
      size_t cut = 0;
      for (int64_t sum = 0; cut + 1 < counts.size(); ++cut)
        if ((sum += static_cast<int64_t>(cut + 1) * counts[cut + 1]) > tokens / part) break;
      if (cut == last_cut) continue;
      last_cut = cut;
      Rooms mixed(capacity);
      if (deal_and_fill(counts, cut, packs + more, mixed)) return std::move(mixed).shapes();
    }
  }
  return std::move(tight).shapes();
}

std::vector<int64_t> count_lengths(std::span<const int32_t> rows, std::span<const int32_t> lengths) {
  const int32_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  std::vector<int64_t> counts(static_cast<size_t>(longest) + 1);
  for (const int32_t r : rows) ++counts[static_cast<size_t>(lengths[static_cast<size_t>(r)])];
  return counts;
}

std::vector<int64_t> pack_rows(std::vector<int32_t>& rows, std::span<const int32_t> lengths, int64_t capacity,
                               SplitMix64* random) {
  const std::vector<int64_t> counts = count_lengths(rows, lengths);
  const std::vector<PackShape> shapes = pack_shapes(counts, capacity);

  // Rows by length, each length's in the order they came; next[n]: the first that is not in a pack yet.
  std::vector<int64_t> next(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), next.begin(), int64_t{0});
  std::vector<int32_t> by_length(rows.size());
  {
    std::vector<int64_t> at = next;
    for (const int32_t r : rows) {
      const auto n = static_cast<size_t>(lengths[static_cast<size_t>(r)]);
      by_length[static_cast<size_t>(at[n]++)] = r;
    }
  }

  std::vector<int32_t> packs;  // the shape of each
  for (size_t s = 0; s < shapes.size(); ++s)
    packs.insert(packs.end(), static_cast<size_t>(shapes[s].count), static_cast<int32_t>(s));
  if (random) shuffle(packs, *random);

  std::vector<int64_t> starts{0};
  starts.reserve(packs.size() + 1);
  rows.clear();
  for (const int32_t pack : packs) {
    for (int32_t s = pack; s >= 0; s = shapes[static_cast<size_t>(s)].parent) {
      const PackShape& shape = shapes[static_cast<size_t>(s)];
      int64_t& from = next[static_cast<size_t>(shape.length)];
      rows.insert(rows.end(), by_length.begin() + from, by_length.begin() + from + shape.times);
      from += shape.times;
    }
    starts.push_back(static_cast<int64_t>(rows.size()));
  }
  if (random) return starts;

  std::vector<std::vector<int32_t>> lists;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    auto& list = lists.emplace_back(rows.begin() + starts[i], rows.begin() + starts[i + 1]);
    std::sort(list.begin(), list.end());
  }
  std::sort(lists.begin(), lists.end());
  rows.clear();
  for (size_t i = 0; i < lists.size(); ++i) {
    rows.insert(rows.end(), lists[i].begin(), lists[i].end());
    starts[i + 1] = static_cast<int64_t>(rows.size());
  }
  return starts;
}

}  // namespace bantam
