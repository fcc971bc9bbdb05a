// SPDX-License-Identifier: Apache-2.0
// Settings of a file and of flags to a Recipe: precedence, contradictions, what is required, paths. Internal to load.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "key_table.h"

namespace bantam {

/// Where a setting stands. line 0: outside the file, and `path` is what was written there (--learning-rate).
struct Place {
  int line = 0, column = 0;
  std::string path;
};
struct Problem {
  Place place;
  std::string message;
};
struct Setting {
  const KeySpec* key = nullptr;
  Place place;
  std::string written;  ///< the name that was used
  KeyValue value;
  bool mapped = false;    ///< through an alias that implies the value
  int64_t per_epoch = 0;  ///< evals_per_epoch and its like
};
using Settings = std::map<const KeySpec*, Setting>;

struct Resolution {
  std::string file;  ///< empty: no recipe file
  std::vector<Problem>& problems;
  std::vector<std::string>& notices;
  const std::set<const KeySpec*>& tried;  ///< keys that were written, well or not
  const Place* evaluation_off = nullptr;  ///< where eval_strategy: no stands
};

/// "file:line:column: path", or the flag.
std::string show_place(const std::string& file, const Place& place);
/// Adds problems and notices; the result means something only when there are no problems.
Recipe resolve(const Settings& from_file, const Settings& from_flags, Resolution& resolution);
/// One Error(usage) with a line per problem in the order of the file, when there are any.
void throw_problems(const std::string& file, std::vector<Problem>& problems);

}  // namespace bantam
