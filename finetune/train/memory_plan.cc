// SPDX-License-Identifier: Apache-2.0
#include "memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "../../kernels/error.h"

namespace bantam {

size_t MemoryPlan::total() const {
  size_t sum = 0;
  for (const auto& l : lines) sum += l.bytes;
  return sum;
}

size_t MemoryPlan::anonymous() const {
  size_t sum = 0;
  for (const auto& l : lines)
    if (!l.mapped) sum += l.bytes;
  return sum;
}

std::string MemoryPlan::table() const {
  size_t width = 5;
  for (const auto& l : lines) width = std::max(width, l.name.size());
  const auto row = [&](const std::string& name, size_t bytes, const char* note) {
    return "  " + name + std::string(width - name.size() + 2, ' ') + size_text(bytes) + note + "\n";
  };
  std::string out;
  for (const auto& l : lines) out += row(l.name, l.bytes, l.mapped ? "  (mapped file)" : "");
  return out + row("total", total(), "");
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

void check_fits(const MemoryPlan& plan, size_t need, size_t limit, const std::string& what) {
  if (need <= limit) return;
  const auto largest = std::max_element(plan.lines.begin(), plan.lines.end(),
                                        [](const MemoryLine& a, const MemoryLine& b) { return a.bytes < b.bytes; });
  std::string hint =
      "a smaller loss_chunk_bytes; a smaller micro_batch_size with more gradient_accumulation_steps; only then a "
      "shorter max_seq_length";
  if (plan.schedule != "true") hint = "turn gradient_checkpointing on (the results stay the same); then " + hint;
  throw Error(ErrorCode::does_not_fit,
              str("memory: the plan needs ", size_text(need), ", ", size_text(need - limit), " more than ", what, " ",
                  size_text(limit), "; its largest line is ", largest->name, " with ", size_text(largest->bytes)),
              hint);
}

size_t available_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    size_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %zu", &kib) == 1) return kib * 1024;
  }
  return 0;
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
