// SPDX-License-Identifier: Apache-2.0
// What a run will hold in memory, line by line, before anything is allocated; and what the process really holds.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace bantam {

struct MemoryLine {
  std::string name;
  size_t bytes = 0;
  bool mapped = false;  ///< file-backed pages of the weight store: shared, and given back under pressure
};

struct MemoryPlan {
  std::vector<MemoryLine> lines;
  std::string schedule;           ///< name of the recompute schedule
  double recompute_overhead = 0;  ///< planned: recompute FLOPs over the FLOPs of a step without
  size_t total() const;
  size_t anonymous() const;   ///< without mapped lines
  std::string table() const;  ///< for people: a line each, and the sum
};

/// "1.24 GiB", "37.0 MiB", "512 B".
std::string size_text(size_t bytes);

/// Error(does_not_fit) when `need` is above `limit` bytes: by how much, the largest line, and what to change, in the
/// order checkpointing, loss chunk, micro-batch, length. `what` names the limit ("memory_limit", "free memory").
void check_fits(const MemoryPlan& plan, size_t need, size_t limit, const std::string& what);

/// MemAvailable of /proc/meminfo; 0 where that is not there.
size_t available_memory();

struct ProcessMemory {
  size_t anonymous = 0;  ///< RssAnon
  size_t resident = 0;   ///< VmRSS
  size_t peak = 0;       ///< VmHWM
};
/// Of this process, from /proc/self/status; zeros where that is not there.
ProcessMemory process_memory();

}  // namespace bantam
