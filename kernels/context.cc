// SPDX-License-Identifier: Apache-2.0
#include "context.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "backend.h"
#include "error.h"
#include "host_memory.h"

namespace bantam {

namespace {
int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512bf16:
      return "avx512bf16";
  }
  return "?";
}

Isa best_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#if !defined(__clang__)  // which does not know the name; no CPU has AVX2 without it
  avx2 = avx2 && __builtin_cpu_supports("f16c");
#endif
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return Isa::avx512bf16;
  if (avx512) return Isa::avx512;
  if (avx2) return Isa::avx2;
#endif
  return Isa::scalar;
}

Isa default_isa() {
#if defined(__x86_64__)
  if (best_isa() == Isa::avx512bf16 && __builtin_cpu_is("intel")) return Isa::avx512;
#endif
  return best_isa();
}

Context::Context(const ContextOptions& options)
    : pool_(options.num_threads > 0 ? options.num_threads : usable_cores()),
      isa_(options.isa),
      device_(options.device),
      scratch_(nullptr, release_host) {
  if (isa_ > best_isa())
    throw Error(ErrorCode::device,
                str("CPU tier ", name_of(isa_), " asked for, but this machine has ", name_of(best_isa())),
                "choose a lower tier");
  backend_ = options.backend.empty() ? &cpu_backend() : &load_backend(options.backend);
  if (backend_->open) backend_->open(device_);
  scratch_.reset(static_cast<char*>(allocate_host(workspace_bytes())));
  if (!scratch_) throw Error(ErrorCode::does_not_fit, str("cannot reserve ", workspace_bytes(), " bytes of workspace"));
  std::memset(scratch_.get(), 0, workspace_bytes());  // touched before step 1
}

Context::~Context() = default;

std::string Context::device_name() const {
  return backend_->open ? str(backend_->name, ":", device_) : backend_->name;
}

void* Context::scratch(int thread) {
  return scratch_.get() + kThreadScratch * static_cast<size_t>(thread);
}

void parallel_for(Context& ctx, int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int)>& f) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (n <= grain || ctx.num_threads() == 1) {
    for (int64_t b = 0; b < n; b += grain) f(b, std::min(n, b + grain), 0);
    return;
  }
  std::atomic<int64_t> next{0};
  ctx.pool().run([&](int thread) {
    for (int64_t b = next.fetch_add(grain); b < n; b = next.fetch_add(grain)) f(b, std::min(n, b + grain), thread);
  });
}

}  // namespace bantam
