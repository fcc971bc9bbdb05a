// SPDX-License-Identifier: Apache-2.0
#include "memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "../../kernels/backend.h"
#include "../../kernels/error.h"

namespace bantam {

size_t MemoryPlan::total() const {
  size_t sum = 0;
  for (const auto& l : lines)
    if (!l.host) sum += l.bytes;
  return sum;
}

size_t MemoryPlan::host() const {
  size_t sum = 0;
  for (const auto& l : lines)
    if (l.host) sum += l.bytes;
  return sum;
}

size_t MemoryPlan::anonymous() const {
  size_t sum = 0;
  for (const auto& l : lines)
    if (!l.mapped && !l.host) sum += l.bytes;
  return sum;
}

size_t MemoryPlan::need() const {
  return limit.counts_mapped ? total() : anonymous();
}

bool MemoryPlan::fits() const {
  return host_fits() && (limit.bytes == 0 || need() <= limit.bytes);
}

MemoryLimit memory_limit(size_t limit, size_t reserve) {
  if (limit > 0) return {limit, true, "memory_limit"};
  const size_t free = available_memory();
  if (free == 0) return {};
  const size_t room = free + process_memory().anonymous;
  return {room > reserve ? room - reserve : 1, false, reserve > 0 ? "free memory less memory_reserve" : "free memory"};
}

MemoryLimit memory_limit(const Context& ctx, size_t limit, size_t reserve) {
  const Backend& backend = ctx.backend();
  if (limit > 0 || !backend.device_info) return memory_limit(limit, reserve);
  const size_t room = backend.device_info(ctx.device()).memory_free + backend.memory_use().now;
  return {room > reserve ? room - reserve : 1, true,
          str("free memory of ", ctx.device_name(), reserve > 0 ? " less memory_reserve" : "")};
}

size_t host_room(size_t reserve) {
  const size_t free = available_memory();
  return free == 0 ? 0 : free > reserve ? free - reserve : 1;
}

std::string MemoryPlan::table() const {
  size_t width = 5;
  for (const auto& l : lines) width = std::max(width, l.name.size());
  const auto row = [&](const std::string& name, size_t bytes, const char* note) {
    return "  " + name + std::string(width - name.size() + 2, ' ') + size_text(bytes) + note + "\n";
  };
  std::string out;
  for (const auto& l : lines)
    if (!l.host) out += row(l.name, l.bytes, l.mapped ? "  (mapped file)" : "");
  out += row("total", total(), "");
  if (limit.bytes > 0) {
    const bool within = need() <= limit.bytes;
    const std::string over = within ? "  fits" : str("  does not fit: ", size_text(need() - limit.bytes), " over");
    out += row("limit", limit.bytes,
               str("  (", limit.name, limit.counts_mapped ? ")" : ", mapped files beside it)", over).c_str());
  }
  for (const auto& l : lines) {
    if (!l.host) continue;
    const std::string free = host_limit > 0 ? str(", of ", size_text(host_limit), " free") : "";
    out += row(l.name, l.bytes,
               str("  (pinned host memory beside it", free, host_fits() ? ")" : "): does not fit").c_str());
  }
  return out;
}

std::string size_text(size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double v = static_cast<double>(bytes);
  size_t u = 0;
  for (; v >= 1024 && u + 1 < std::size(kUnits); ++u) v /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, u == 0 ? "%.0f %s" : v < 10 ? "%.2f %s" : "%.1f %s", v, kUnits[u]);
  return text;
}

void check_fits(const MemoryPlan& plan, const std::string& given) {
  if (plan.fits()) return;
  if (plan.limit.bytes == 0 || plan.need() <= plan.limit.bytes)
    throw Error(
        ErrorCode::does_not_fit,
        str("host memory: the inputs of ", plan.offloaded_inputs, " layers take ", size_text(plan.offloaded_bytes),
            ", with the staging of uploads ", size_text(plan.host()), ", ", size_text(plan.host() - plan.host_limit),
            " more than the ", size_text(plan.host_limit), " that are free"),
        given.empty() ? "gradient_checkpointing: auto offloads as many as there is room for; or a smaller "
                        "micro_batch_size, or leave activation_offloading out"
                      : given);
  const auto counted = [](const MemoryLine& l) { return l.host ? 0 : l.bytes; };
  const auto largest =
      std::max_element(plan.lines.begin(), plan.lines.end(),
                       [&](const MemoryLine& a, const MemoryLine& b) { return counted(a) < counted(b); });
  std::string hint =
      "a smaller loss_chunk_bytes; a smaller micro_batch_size with more gradient_accumulation_steps; only then a "
      "shorter max_seq_length";
  if (plan.schedule != "true" && plan.schedule != "auto")
    hint = "turn gradient_checkpointing on (the results stay the same); then " + hint;
  throw Error(ErrorCode::does_not_fit,
              str("memory: the plan needs ", size_text(plan.need()), ", ", size_text(plan.need() - plan.limit.bytes),
                  " more than ", plan.limit.name, " ", size_text(plan.limit.bytes), "; its largest line is ",
                  largest->name, " with ", size_text(largest->bytes)),
              given.empty() ? hint : given);
}

namespace {

// A file of one number, or "max".
size_t number_in(const std::string& path) {
  std::ifstream in(path);
  size_t v = 0;
  return in >> v ? v : SIZE_MAX;
}

size_t value_of(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string name;
  for (size_t v = 0; in >> name >> v;)
    if (name == key) return v;
  return 0;
}

}  // namespace

size_t cgroup_room(const std::string& folder) {
  const bool v2 = std::ifstream(folder + "/memory.max").good();
  const size_t limit = number_in(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const size_t used = number_in(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (limit == SIZE_MAX || used == SIZE_MAX || limit >= size_t{1} << 60) return SIZE_MAX;  // v1 says "no limit" so
  const size_t cache = value_of(folder + "/memory.stat", v2 ? "inactive_file" : "total_inactive_file");
  const size_t held = used - std::min(used, cache);
  return limit - std::min(limit, held);
}

size_t available_memory() {
  size_t least = SIZE_MAX;
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    size_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %zu", &kib) == 1) least = kib * 1024;
  }
  // "0::/a/b" is version 2, "4:memory:/a/b" version 1. Every group up to the root may set a limit; in a container the
  // root is what is mounted.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t one = line.find(':'), two = line.find(':', one + 1);
    if (one == std::string::npos || two == std::string::npos) continue;
    const std::string controllers = "," + line.substr(one + 1, two - one - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",memory,") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(two + 1);
    for (;; path.resize(path.rfind('/'))) {
      least = std::min(least, cgroup_room(root + path));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least == SIZE_MAX ? 0 : least;
}

ProcessMemory process_memory() {
  ProcessMemory m;
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    size_t kib = 0;
    if (std::sscanf(line.c_str(), "RssAnon: %zu", &kib) == 1) m.anonymous = kib * 1024;
    if (std::sscanf(line.c_str(), "VmRSS: %zu", &kib) == 1) m.resident = kib * 1024;
    if (std::sscanf(line.c_str(), "VmHWM: %zu", &kib) == 1) m.peak = kib * 1024;
  }
  return m;
}

}  // namespace bantam
