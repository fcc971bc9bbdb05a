// SPDX-License-Identifier: Apache-2.0
// Numbers for people: 1,234,567.
#pragma once
#include <cstdint>
#include <string>

namespace bantam {

inline std::string grouped(int64_t n) {
  std::string s = std::to_string(n);
  const size_t first = s[0] == '-' ? 1 : 0;
  for (size_t i = s.size(); i > first + 3;) s.insert(i -= 3, ",");
  return s;
}

}  // namespace bantam
