// SPDX-License-Identifier: Apache-2.0
// Context: one device with its function table, threads and scratch; the first argument of every op. Not thread-safe:
// one Context per trainer thread. Two Contexts share nothing that is written.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "thread_pool.h"

namespace bantam {

struct Backend;

/// Instruction-set tiers of the CPU backend, worst to best. Results are reproducible within one tier.
enum class Isa : uint8_t { scalar, avx2, avx512, avx512bf16 };
const char* name_of(Isa isa);
/// The highest tier that this machine runs.
Isa best_isa();
/// The fastest: best_isa(), but avx512 on Intel's CPUs, whose bf16 dot product runs at half the rate of their f32 units
/// (measured on Sapphire Rapids: 112 to 215 GFLOP/s a core).
Isa default_isa();

/// How products treat their operands. f32: as they are. bf16: frozen weights are rounded to bf16 when decoded (what
/// bitsandbytes does with a bf16 compute dtype); a tier with bf16 arithmetic also rounds f32 operands. Sums are f32.
enum class Math : uint8_t { f32, bf16 };

/// A gradient output is overwritten or added to.
enum class GradMode : uint8_t { write, add };

struct ContextOptions {
  int num_threads = 0;       ///< 0: one per core that this process may use
  std::string backend = "";  ///< empty: the built-in CPU; else a backend library, by path or by name
  int device = 0;            ///< of that backend; one process uses one device
  Isa isa = default_isa();   ///< CPU tier; a tier that the machine lacks is Error(device)
};

class Context {
 public:
  /// Bytes of scratch that each thread owns, reserved at construction; ops may use it within one call only.
  static constexpr size_t kThreadScratch = size_t{2} << 20;

  explicit Context(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Backend& backend() const { return *backend_; }
  /// "cpu", or "cuda:0".
  std::string device_name() const;
  int device() const { return device_; }
  Isa isa() const { return isa_; }
  int num_threads() const { return pool_.size(); }
  ThreadPool& pool() { return pool_; }
  /// kThreadScratch bytes, 64-byte aligned, of thread `thread` (0 .. num_threads-1).
  void* scratch(int thread);
  /// What scratch costs in all.
  size_t workspace_bytes() const { return kThreadScratch * static_cast<size_t>(num_threads()); }

 private:
  ThreadPool pool_;
  Isa isa_;
  const Backend* backend_;
  int device_;
  std::unique_ptr<char, void (*)(void*)> scratch_;
};

/// Cuts [0, n) into pieces of `grain` (the last may be short) and calls f(begin, end, thread) for each, on all threads,
/// pieces handed out in order to whoever is free. The pieces depend on n and grain only, never on the thread count.
void parallel_for(Context& ctx, int64_t n, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end, int thread)>& f);

}  // namespace bantam
