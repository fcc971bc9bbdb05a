// SPDX-License-Identifier: Apache-2.0
// The engine of cuda_on_cpu.h: fibers, barriers, shared memory, checks. Blocks run one after the other on one host
// thread; a fiber runs until it waits and then switches directly to the next.
#include "engine.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#if defined(__x86_64__) && !COC_UCONTEXT
#define COC_ASM_SWITCH 1
#else
#include <ucontext.h>
#endif
#if COC_ASAN
#include <pthread.h>
#endif
#if COC_TSAN
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#define COC_ACQUIRE(a) __tsan_acquire(a)
#define COC_RELEASE(a) __tsan_release(a)
#else
#define COC_ACQUIRE(a) ((void)(a))
#define COC_RELEASE(a) ((void)(a))
#endif

uint3 threadIdx, blockIdx, blockDim, gridDim;
extern "C" void coc_swap(void** save, void* to);

namespace coc {
Lane* cur;

namespace {
constexpr unsigned kFull = 0xffffffffu;
constexpr size_t kStack = 256 * 1024, kGuard = 4096;  // address space; only touched pages cost memory
constexpr size_t kArena = 256 * 1024, kRedZone = 64;
#if COC_TSAN
constexpr int kPools = 2;  // blocks alternate between two sets of fibers: program order on a reused fiber would hide
#else                      // races between successive blocks
constexpr int kPools = 1;
#endif

struct Fiber : Lane {
  char* stack;
  size_t stack_size;
  bool done;
#if !COC_ASM_SWITCH
  ucontext_t context;
#endif
#if COC_ASAN
  void* fake_stack;
#endif
#if COC_TSAN
  void* tsan;
#endif
};

Fiber all_fibers[kPools * kMaxThreads], main_fiber, *fibers = all_fibers;
Warp warps[kMaxWarps];
unsigned long launches;  // of kernels, so far
std::thread::id owner;   // the host thread that launches kernels
// The running block. ready: lanes that neither wait nor are done; volatile, or a memset that TSan sees would reset it.
volatile unsigned ready[kMaxWarps];
int num_threads, num_warps, num_done, cur_warp, waiting;
unsigned barrier_count;
const char* barrier_file;
int barrier_line;
char barrier_sync[2], warp_sync[kMaxWarps][2], start_sync, end_sync;  // addresses for ThreadSanitizer
void (*call)(void*);
void* call_args;
// Shared memory: dynamic, then the block's CU_SHARED variables in the order of first use.
struct SharedSlot {
  size_t size;
  const char* name;
  char* at;
  uint64_t epoch;
};
std::vector<SharedSlot>& shared_slots() {
  static auto* slots = new std::vector<SharedSlot>;
  return *slots;
}
char* arena;
size_t dynamic_size, arena_top, arena_dirty = kArena, static_used;  // dirty: may differ from the poison
uint64_t epoch;
enum Schedule { kForward, kReverse, kRandom } schedule = kForward;
uint64_t random_state = 88172645463325252u;

unsigned random_bits() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<unsigned>(random_state >> 32);
}

#if COC_ASM_SWITCH
asm(R"(
.text
.p2align 4
.hidden coc_swap
.globl coc_swap
.type coc_swap,@function
coc_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size coc_swap,.-coc_swap
)");
#endif

void fiber_entry();

void reset_fiber(Fiber& f) {
  COC_UNPOISON(f.stack, f.stack_size);
#if COC_ASM_SWITCH
  // Stagger the stack tops: with equal ones the hot lines of all stacks would share a few cache sets.
  const size_t colour = static_cast<size_t>(&f - all_fibers) * 320 % 8192;
  auto** top = reinterpret_cast<void**>(f.stack + f.stack_size - 64 - colour);
  memset(top, 0, 64);
  top[6] = reinterpret_cast<void*>(&fiber_entry);
  f.sp = top;
#else
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = f.stack_size;
  f.context.uc_link = nullptr;
  makecontext(&f.context, fiber_entry, 0);
  f.sp = f.stack;
#endif
#if COC_TSAN
  f.tsan = __tsan_create_fiber(0);
#endif
}

void* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("", 0, "no address space for the emulation");
  return p;
}

void init() {
  if (const char* e = getenv("COC_SCHED")) {
    if (strncmp(e, "rev", 3) == 0) schedule = kReverse;
    if (strncmp(e, "rand", 4) == 0) {
      schedule = kRandom;
      random_state += (e[4] == ':' ? strtoull(e + 5, nullptr, 10) : 1) * 2654435761u;
    }
  }
  char* stacks = static_cast<char*>(map(kStack * kMaxThreads * kPools));
  arena = static_cast<char*>(map(kArena));
  for (int i = 0; i < kMaxThreads * kPools; ++i) {
    Fiber& f = all_fibers[i];
    mprotect(stacks + kStack * static_cast<size_t>(i), kGuard, PROT_NONE);
    f.stack = stacks + kStack * static_cast<size_t>(i) + kGuard;
    f.stack_size = kStack - kGuard;
    f.warp = &warps[i % kMaxThreads / 32];
    f.lane = i % 32;
  }
  for (int i = 0; i < kMaxWarps; ++i) warps[i].index = i;
#if COC_ASAN
  pthread_attr_t attr;
  void* low = nullptr;
  pthread_getattr_np(pthread_self(), &attr);
  pthread_attr_getstack(&attr, &low, &main_fiber.stack_size);
  pthread_attr_destroy(&attr);
  main_fiber.stack = static_cast<char*>(low);
#endif
#if COC_TSAN
  main_fiber.tsan = __tsan_get_current_fiber();
#endif
  cur = &main_fiber;
  owner = std::this_thread::get_id();
}

void switch_to(Fiber* to) {
  auto* from = static_cast<Fiber*>(cur);
  cur = to;
  threadIdx = to->tid;
#if COC_ASAN
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_size);
#endif
#if COC_TSAN
  __tsan_switch_to_fiber(to->tsan, 1 /* no synchronisation */);
#endif
#if COC_ASM_SWITCH
  coc_swap(&from->sp, to->sp);
#else
  swapcontext(&from->context, &to->context);
#endif
#if COC_ASAN
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

// The next lane of those in the mask, by the schedule.
int choose(unsigned mask) {
  if (schedule == kForward) return std::countr_zero(mask);
  if (schedule == kReverse) return 31 - std::countl_zero(mask);
  const int r = static_cast<int>(random_bits() & 31);
  return (std::countr_zero(std::rotr(mask, r)) + r) & 31;
}
Fiber* pick() {
  if (schedule == kRandom) cur_warp = static_cast<int>(random_bits() % static_cast<unsigned>(num_warps));
  for (int i = 0; i < num_warps; ++i) {
    const int w = schedule == kReverse ? (cur_warp - i + num_warps) % num_warps : (cur_warp + i) % num_warps;
    if (const unsigned mask = ready[w]) {
      cur_warp = w;
      return &fibers[w * 32 + choose(mask)];
    }
  }
  return nullptr;
}

const char* name_of(Op op) {
  switch (op) {
    case kShuffle:
      return "__shfl_sync";
    case kBallot:
      return "__ballot_sync";
    case kSyncWarp:
      return "__syncwarp";
    case kBarrier:
      return "__syncthreads";
    case kMma:
      return "mma_bf16";
    case kLdmatrix:
      return "ldmatrix";
  }
  return "?";
}
[[noreturn]] void deadlock() {
  fprintf(stderr, "cuda_on_cpu: ERROR: deadlock in block (%u,%u,%u): its threads diverged\n", blockIdx.x, blockIdx.y,
          blockIdx.z);
  const auto same = [](const Fiber& a, const Fiber& b) {
    return a.done == b.done && (a.done || (a.op == b.op && a.line == b.line));
  };
  for (int i = 0; i < num_threads; ++i) {  // one line per distinct place
    int first = 0, count = 0, last = i;
    while (!same(fibers[first], fibers[i])) ++first;
    if (first != i) continue;
    for (int k = i; k < num_threads; ++k)
      if (same(fibers[k], fibers[i])) ++count, last = k;
    const Fiber& f = fibers[i];
    fprintf(stderr, "    %d thread(s), %d..%d, ", count, i, last);
    if (f.done)
      fprintf(stderr, "returned from the kernel\n");
    else
      fprintf(stderr, "wait in %s at %s:%d\n", name_of(f.op), f.file, f.line);
  }
  fflush(stderr);
  abort();
}
// The current fiber waits or is done.
void leave() {
  Fiber* me = static_cast<Fiber*>(cur);
  ready[me->warp->index] = ready[me->warp->index] & ~(1u << me->lane);
  if (num_done == num_threads) return switch_to(&main_fiber);
  Fiber* next = pick();
  if (!next) deadlock();
  switch_to(next);
}
void fiber_entry() {
#if COC_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  for (;;) {  // once per block
    COC_ACQUIRE(&start_sync);
    call(call_args);
    if (!cur->copies.empty()) fail("", 0, "a thread ends with asynchronous copies that it has not waited for");
    COC_RELEASE(&end_sync);
    static_cast<Fiber*>(cur)->done = true;
    ++num_done;
    leave();
  }
}

void run_block() {
#if COC_TSAN
  // Shared memory of a new block is new memory: remap it, so that accesses of earlier blocks are forgotten.
  constexpr size_t kPage = 4096;
  arena_dirty = (arena_dirty + kPage - 1) / kPage * kPage;
  if (arena_dirty &&
      mmap(arena, arena_dirty, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    fail("", 0, "cannot remap shared memory");
#endif
  fibers = all_fibers + (kPools > 1 ? (epoch & 1) * kMaxThreads : 0);
  ++epoch;
  COC_UNPOISON(arena, kArena);
  memset(arena, 0xff, arena_dirty);  // NaN as float
  arena_top = arena_dirty = (dynamic_size + 127) / 128 * 128;
  static_used = 0;
  COC_POISON(arena + dynamic_size, kArena - dynamic_size);
  num_done = waiting = 0;
  cur_warp = schedule == kReverse ? num_warps - 1 : 0;
  for (int w = 0; w < num_warps; ++w) {
    ready[w] = kFull;
    warps[w].arrived = 0;
  }
  for (int i = 0; i < num_threads; ++i) {
    Fiber& f = fibers[i];
    if (!f.sp) reset_fiber(f);
    f.phase = 0;
    f.copy_group = 0;
    f.done = false;
    const auto t = static_cast<unsigned>(i);
    f.tid = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
  }
  COC_RELEASE(&start_sync);
  switch_to(pick());
}

void run_grid(dim3 grid, dim3 block, size_t shared_bytes) {
  if (!arena) init();
  if (owner != std::this_thread::get_id()) fail("", 0, "kernel launch from a second host thread");
  const DeviceScope on_device;
  blockDim = {block.x, block.y, block.z};
  gridDim = {grid.x, grid.y, grid.z};
  num_threads = static_cast<int>(block.x * block.y * block.z);
  num_warps = num_threads / 32;
  dynamic_size = shared_bytes;
  const uint64_t n = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t start = schedule == kRandom ? random_bits() % n : 0;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t b = schedule == kReverse ? n - 1 - i : (i + start) % n;
    blockIdx = {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                static_cast<unsigned>(b / grid.x / grid.y)};
    run_block();
  }
  COC_ACQUIRE(&end_sync);
}
}  // namespace

extern "C" __attribute__((visibility("default"))) unsigned long coc_launch_count() {
  return launches;
}

void fail(const char* file, int line, const char* format, ...) {
  fprintf(stderr, "cuda_on_cpu: ERROR: ");
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  if (line) fprintf(stderr, "\n    at %s:%d", file, line);
  if (cur && cur != &main_fiber)
    fprintf(stderr, "\n    in block (%u,%u,%u) thread (%u,%u,%u)", blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
            threadIdx.y, threadIdx.z);
  fputc('\n', stderr);
  fflush(stderr);
  abort();
}

void warp_meet(Op op, unsigned mask, const char* file, int line) {
  Lane* me = cur;
  Warp& w = *me->warp;
  if (mask != kFull) fail(file, line, "%s with mask 0x%08x: only the full mask is supported", name_of(op), mask);
  me->op = op;
  me->file = file;
  me->line = line;
  void* sync = &warp_sync[w.index][me->phase & 1];
  if (w.arrived == 0) {
    w.op = op;
    w.file = file;
    w.line = line;
  } else if (w.op != op || w.line != line || strcmp(w.file, file) != 0) {
    fail(file, line, "divergent warp: this lane is in %s, other lanes of the warp wait in %s at %s:%d", name_of(op),
         name_of(w.op), w.file, w.line);
  }
  if (op == kSyncWarp) COC_RELEASE(sync);
  w.arrived |= 1u << me->lane;
  if (w.arrived == kFull) {
    w.arrived = 0;
    ready[w.index] = kFull;
  } else {
    leave();
  }
  if (op == kSyncWarp) COC_ACQUIRE(sync);
  ++me->phase;
}

void block_meet(const char* file, int line) {
  Lane* me = cur;
  me->op = kBarrier;
  me->file = file;
  me->line = line;
  if (waiting == 0) {
    barrier_file = file;
    barrier_line = line;
  } else if (barrier_line != line || strcmp(barrier_file, file) != 0) {
    fail(file, line, "divergent barrier: this thread is in __syncthreads here, others wait in the one at %s:%d",
         barrier_file, barrier_line);
  }
  void* sync = &barrier_sync[barrier_count & 1];
  COC_RELEASE(sync);
  if (++waiting == num_threads) {
    waiting = 0;
    ++barrier_count;
    for (int w = 0; w < num_warps; ++w) ready[w] = kFull;
    if (schedule == kForward) cur_warp = 0;  // the last to arrive has no privilege
    if (Fiber* next = pick(); next != me) switch_to(next);
  } else {
    leave();
  }
  COC_ACQUIRE(sync);
}

unsigned shared_slot(size_t size, const char* name) {
  shared_slots().push_back({size, name, nullptr, 0});
  return static_cast<unsigned>(shared_slots().size() - 1);
}
void* shared_ptr(unsigned slot) {
  SharedSlot& s = shared_slots()[slot];
  if (s.epoch != epoch) {  // first thread of the block to get here
    arena_top = (arena_top + kRedZone + 15) / 16 * 16;
    static_used += s.size;
    if (static_used > kSharedDefault) fail("", 0, "static shared memory exceeds 48 KiB at '%s'", s.name);
    s.at = arena + arena_top;
    s.epoch = epoch;
    arena_top += s.size;
    arena_dirty = arena_top;
    COC_UNPOISON(s.at, s.size);
  }
  return s.at;
}
void* dyn_shared() {
  return arena;
}
void check_16_bytes(const void* p, bool shared, const char* what, const char* file, int line) {
  const auto* at = static_cast<const char*>(p);
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0) fail(file, line, "%s is %p, which is not aligned to 16 bytes", what, p);
  if (shared && (at < arena || at + 16 > arena + arena_top))
    fail(file, line, "%s is %p, which is not in shared memory", what, p);
}

cudaError_t launch_raw(const cudaLaunchConfig_t& config, const void* kernel, void (*fn)(void*), void* args,
                       void (*destroy)(void*), const void* const* pointers, int num_pointers) {
  const dim3 g = config.gridDim, b = config.blockDim;
  const size_t shared_bytes = config.dynamicSmemBytes;
  const uint64_t n = uint64_t{b.x} * b.y * b.z;
  cudaError_t e = cudaSuccess;
  if (!injected("cudaLaunchKernel", &e)) {
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || !n || n > kMaxThreads || b.z > 64)
      e = cudaErrorInvalidConfiguration;
    else if (shared_bytes > dynamic_shared_limit(kernel))
      e = cudaErrorInvalidValue;
  }
  ++launches;
  if (e != cudaSuccess) {
    destroy(args);
    return e;
  }
  if (n % 32) fail("", 0, "block of %u x %u x %u threads: the rule is a multiple of 32", b.x, b.y, b.z);
  for (int i = 0; i < num_pointers; ++i)
    if (pointers[i] && !device_bytes_at(pointers[i]))
      fail("", 0, "kernel argument %p (pointer argument no. %d) is not a device pointer", pointers[i], i);
  enqueue(config.stream, [=] {
    call = fn;
    call_args = args;
    run_grid(g, b, shared_bytes);
    destroy(args);
  });
  return cudaSuccess;
}

}  // namespace coc
