// SPDX-License-Identifier: Apache-2.0
#include "length_counts.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "grouped.h"

namespace bantam {

int64_t LengthCounts::rows() const {
  int64_t n = 0;
  for (const auto& [length, rows] : counts_) n += rows;
  return n;
}

int64_t LengthCounts::percentile(double fraction) const {
  const double wanted = fraction * static_cast<double>(rows());
  int64_t seen = 0;
  for (const auto& [length, rows] : counts_) {
    seen += rows;
    if (static_cast<double>(seen) >= wanted) return length;
  }
  return 0;
}

std::vector<LengthCounts::Bucket> LengthCounts::buckets() const {
  std::vector<Bucket> out;
  for (const auto& [length, rows] : counts_) {
    const auto n = static_cast<uint64_t>(std::max<int64_t>(length, 1));
    const auto from = static_cast<int64_t>(std::bit_floor(n));
    while (out.empty() || out.back().from < from) {
      const int64_t next = out.empty() ? from : out.back().from * 2;
      out.push_back({next, 2 * next - 1, 0});
    }
    out.back().rows += rows;
  }
  return out;
}

std::string LengthCounts::histogram() const {
  constexpr double kWidth = 40;
  const std::vector<Bucket> all = buckets();
  int64_t most = 1;
  size_t digits = 1, names = 1;
  std::vector<std::string> name;
  for (const Bucket& b : all) {
    most = std::max(most, b.rows);
    digits = std::max(digits, grouped(b.rows).size());
    name.push_back(b.from == b.to ? grouped(b.from) : grouped(b.from) + "-" + grouped(b.to));
    names = std::max(names, name.back().size());
  }
  std::string out;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string count = grouped(all[i].rows);
    const auto bar =
        static_cast<size_t>(std::ceil(kWidth * static_cast<double>(all[i].rows) / static_cast<double>(most)));
    out += "  " + std::string(names - name[i].size(), ' ') + name[i] + "  " + std::string(digits - count.size(), ' ') +
           count + (bar > 0 ? "  " : "") + std::string(bar, '#') + "\n";
  }
  return out;
}

}  // namespace bantam
