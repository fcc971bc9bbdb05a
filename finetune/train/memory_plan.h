// SPDX-License-Identifier: Apache-2.0
// What a run will hold in memory, line by line, before anything is allocated; and what the process really holds.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "../../kernels/context.h"

namespace bantam {

struct MemoryLine {
  std::string name;
  size_t bytes = 0;
  bool mapped = false;  ///< file-backed pages of the weight store: shared, and given back under pressure
  bool host = false;    ///< pinned host memory beside a device's plan: no part of the total, held against host_limit
};

/// Bytes that a plan may take, and who says so.
struct MemoryLimit {
  size_t bytes = 0;            ///< 0: no limit
  bool counts_mapped = false;  ///< mapped weights count as well
  std::string name;            ///< "memory_limit", "free memory", for messages
};
/// `limit` bytes for everything; where that is 0, what is free now (memory of this process included, which the plan
/// counts as well) less `reserve`, for everything but mapped files.
MemoryLimit memory_limit(size_t limit, size_t reserve);
/// The same of the memory that `ctx` computes in: on a device, what is free there and what this process holds of it.
MemoryLimit memory_limit(const Context& ctx, size_t limit, size_t reserve);

struct MemoryPlan {
  std::vector<MemoryLine> lines;
  std::string schedule;           ///< name of the recompute schedule
  double recompute_overhead = 0;  ///< planned: seconds over those of a step that rebuilds nothing, less 1
  double offload_overhead = 0;    ///< the part of it that inputs in host memory take
  double forward_seconds = 0, recompute_seconds = 0, backward_seconds = 0;  ///< of the largest micro-batch; 0: unknown
  double offload_seconds = 0;
  int offloaded_inputs = 0;    ///< layers whose input lies in host memory meanwhile
  size_t offloaded_bytes = 0;  ///< of host memory, for them
  MemoryLimit limit;
  size_t host_limit = 0;  ///< bytes of pinned host memory that there are for offloaded inputs; 0: unknown
  size_t total() const;
  size_t host() const;  ///< of the host lines
  bool host_fits() const { return host_limit == 0 || offloaded_inputs == 0 || host() <= host_limit; }
  size_t anonymous() const;   ///< without mapped lines
  size_t need() const;        ///< what the limit is held against
  bool fits() const;          ///< the device's memory, or the host's where that computes, and host_fits()
  std::string table() const;  ///< for people: a line each, the sum, and the limit
};

/// "1.24 GiB", "37.0 MiB", "512 B".
std::string size_text(size_t bytes);

/// What the host has free for offloaded inputs, less `reserve`; 0: unknown.
size_t host_room(size_t reserve);

/// Error(does_not_fit) when the plan is above its limit: by how much, the largest line, and `hint`, or else the advice
/// in the order checkpointing, loss chunk, micro-batch, length.
void check_fits(const MemoryPlan& plan, const std::string& hint = {});

/// Memory that this process can still get: MemAvailable of /proc/meminfo, and what its control groups (version 2 or 1)
/// leave, whichever is least; 0 where none is known.
size_t available_memory();
/// What a control group leaves: its limit less its use, where page cache that can be given back counts as free.
/// `folder`: of the group; version 2 (memory.max) or 1 (memory.limit_in_bytes). SIZE_MAX: no limit there.
size_t cgroup_room(const std::string& folder);

struct ProcessMemory {
  size_t anonymous = 0;  ///< RssAnon
  size_t resident = 0;   ///< VmRSS
  size_t peak = 0;       ///< VmHWM
};
/// Of this process, from /proc/self/status; zeros where that is not there.
ProcessMemory process_memory();

}  // namespace bantam
