// SPDX-License-Identifier: Apache-2.0
// Fake of the slice of the CUDA runtime that the backend uses, with the real prototypes; a call that is missing here
// fails to link. Device memory is one reserved address range, handed out by a bump allocator that reuses no address:
// new and freed memory holds 0xFF (NaN), AddressSanitizer sees red zones around every allocation.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine.h"
#undef cudaLaunchKernelEx

struct EventState {
  uint64_t recorded = 0, done = 0;  // number of the latest record, and of the latest that the stream has reached
  CUstream_st* in = nullptr;        // where it was last recorded
  std::chrono::steady_clock::time_point time;
};
struct CUevent_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();  // outlives the event in the queues
};
struct StreamItem {
  std::function<void()> work;
  // Or, where this is set: nothing after it runs before the event's record `version` in stream `in` is done.
  std::shared_ptr<EventState> wait;
  uint64_t version = 0;
  CUstream_st* in = nullptr;
};
struct CUstream_st {
  std::deque<StreamItem> queue;
  bool blocked() const {
    return !queue.empty() && queue.front().wait && queue.front().wait->done < queue.front().version;
  }
};
namespace coc {
namespace {
constexpr size_t kRange = size_t{64} << 30, kRed = 256, kPage = 4096;
constexpr int kDevices = 2;
int current_device;  // of the thread, in the real runtime
struct Block {
  char* p;
  size_t size;
  bool freed;
};
struct Pinned {  // memory of cudaMallocHost
  char* p;
  size_t size;
  int reads;  // copies in a queue that have yet to read it
};
char* range;
unsigned long sync_count;
size_t bump, live_bytes;
bool guard, defer;
enum { kLate, kEarly, kAny } stream_order = kLate;  // when the work of other streams than the one asked for is done
uint64_t random_state = 1;
int device_depth;
cudaError_t last_error = cudaSuccess;
CUstream_st null_stream;
// Never destroyed: backends free their memory while the program ends.
template <class T>
std::vector<T>& registry() {
  static auto* v = new std::vector<T>;
  return *v;
}
std::vector<Block>& blocks() {
  return registry<Block>();
}  // sorted, since addresses only grow
Block* block_at(const char* p) {  // the block that begins at or before p
  auto it =
      std::upper_bound(blocks().begin(), blocks().end(), p, [](const char* a, const Block& b) { return a < b.p; });
  return it == blocks().begin() ? nullptr : &it[-1];
}
bool flag(const char* name) {
  const char* e = getenv(name);
  return e && *e && *e != '0';
}
cudaError_t set_error(cudaError_t e) {
  return e == cudaSuccess ? e : last_error = e;
}
void note(const std::string& text) {
  fprintf(stderr, "cuda_on_cpu: ERROR: %s\n", text.c_str());
}

void init() {
  if (range) return;
  void* p = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("", 0, "no address space for device memory");
  range = static_cast<char*>(p);
  defer = flag("COC_DEFER");
  guard = flag("COC_GUARD");
  if (const char* e = getenv("COC_SCHED")) {
    if (strncmp(e, "rev", 3) == 0) stream_order = kEarly;
    if (strncmp(e, "rand", 4) == 0) {
      stream_order = kAny;
      random_state += e[4] == ':' ? strtoull(e + 5, nullptr, 10) : 0;
    }
  }
  if (flag("COC_LEAKS")) {
    atexit([] {
      const auto live = std::count_if(blocks().begin(), blocks().end(), [](const Block& b) { return !b.freed; });
      const size_t pinned = registry<Pinned*>().size();
      if (live == 0 && pinned == 0) return;
      note(std::to_string(live) + " device and " + std::to_string(pinned) + " pinned allocations were not freed");
      _Exit(99);
    });
  }
}
CUevent_st* real(cudaEvent_t e) {
  auto& all = registry<CUevent_st*>();
  if (std::find(all.begin(), all.end(), e) == all.end()) fail("", 0, "use of a destroyed or foreign cudaEvent_t");
  return e;
}
CUstream_st* real(cudaStream_t s) {
  if (!s) return &null_stream;
  auto& all = registry<CUstream_st*>();
  if (std::find(all.begin(), all.end(), s) == all.end()) fail("", 0, "use of a destroyed or foreign cudaStream_t");
  return s;
}
// The stream that takes a step so that `target` comes further. What no event orders may run in any order, so one is
// chosen in which a missing wait shows: streams that nobody asked for run as late as possible, or as early, or at
// random.
CUstream_st* next_stream(CUstream_st* target) {
  CUstream_st* needed = target;
  while (needed->blocked()) needed = needed->queue.front().in;
  if (stream_order == kLate) return needed;
  std::vector<CUstream_st*> ready;
  const auto look = [&](CUstream_st* s) {
    if (!s->queue.empty() && !s->blocked()) ready.push_back(s);
  };
  look(&null_stream);
  for (auto* s : registry<CUstream_st*>()) look(s);
  if (stream_order == kAny) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return ready[(random_state >> 33) % ready.size()];
  }
  for (auto* s : ready)
    if (s != target) return s;
  return needed;
}
void step(CUstream_st* s) {
  CUstream_st* const next = next_stream(s);
  const StreamItem item = std::move(next->queue.front());
  next->queue.pop_front();
  if (item.work) item.work();
}
void drain(CUstream_st* s) {
  while (!s->queue.empty()) step(s);
}
Pinned* pinned_at(const char* p) {
  for (Pinned* b : registry<Pinned*>())
    if (p >= b->p && p < b->p + b->size) return b;
  return nullptr;
}
void drain_all() {
  drain(&null_stream);
  for (auto* s : registry<CUstream_st*>()) drain(s);
}
bool range_ok(const void* p, size_t n, bool device) {
  const size_t left = device_bytes_at(p);
  return device ? left >= n : left == 0;
}
}  // namespace

DeviceScope::DeviceScope() {
  if (device_depth++ == 0 && guard && bump) mprotect(range, bump, PROT_READ | PROT_WRITE);
}
DeviceScope::~DeviceScope() {
  if (--device_depth == 0 && guard && bump) mprotect(range, bump, PROT_NONE);
}
size_t device_bytes_at(const void* p) {
  const auto* c = static_cast<const char*>(p);
  const Block* b = block_at(c);
  return b && !b->freed && c < b->p + b->size ? static_cast<size_t>(b->p + b->size - c) : 0;
}
bool injected(const char* api, cudaError_t* error) {
  if (flag("COC_NO_DEVICE")) {
    *error = cudaErrorInsufficientDriver;  // what the real runtime says where there is no driver
    return true;
  }
  const char* e = getenv("COC_FAIL");
  const size_t n = strlen(api);
  if (!e || strncmp(e, api, n) != 0 || e[n] != ':') return false;
  *error = static_cast<cudaError_t>(atoi(e + n + 1));
  return true;
}
void enqueue(cudaStream_t stream, std::function<void()> work) {
  CUstream_st* s = real(stream);
  s->queue.push_back({.work = std::move(work)});
  if (!defer) drain(s);
}
struct SharedOptIn {
  const void* kernel;
  size_t bytes;
};
size_t dynamic_shared_limit(const void* kernel) {
  size_t r = kSharedDefault;
  for (const auto& a : registry<SharedOptIn>())
    if (a.kernel == kernel) r = std::max(r, a.bytes);
  return r;
}
}  // namespace coc

using namespace coc;

/// For tests, found with dlsym: how many calls so far waited for the device, or might have on a real one.
extern "C" __attribute__((visibility("default"))) unsigned long coc_sync_count() {
  return sync_count;
}

#define ENTER(api)                                                         \
  do {                                                                     \
    cudaError_t injected_error = cudaSuccess;                              \
    coc::init();                                                           \
    if (injected(#api, &injected_error)) return set_error(injected_error); \
  } while (0)

extern "C" {

cudaError_t cudaMalloc(void** p, size_t n) {
  ENTER(cudaMalloc);
  *p = nullptr;
  if (n == 0) return cudaSuccess;
  const char* limit = getenv("COC_MEM_LIMIT");
  const size_t need = (n + kRed - 1) / kRed * kRed + kRed;
  if (need < n || need > kRange - kRed - bump || (limit && live_bytes + n > strtoull(limit, nullptr, 10)))
    return set_error(cudaErrorMemoryAllocation);
  const size_t low = bump / kPage * kPage, high = (bump + kRed + need + kPage - 1) / kPage * kPage;
  mprotect(range + low, high - low, PROT_READ | PROT_WRITE);
  char* c = range + bump + kRed;
  COC_UNPOISON(c, n);
  memset(c, 0xff, n);
  COC_POISON(c - kRed, kRed);
  COC_POISON(c + n, need - n);
  bump += need;
  live_bytes += n;
  blocks().push_back({c, n, false});
  if (guard && device_depth == 0) mprotect(range, high, PROT_NONE);
  *p = c;
  ++sync_count;  // it may wait
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  ENTER(cudaFree);
  if (!p) return cudaSuccess;
  drain_all();  // cudaFree synchronises
  ++sync_count;
  Block* b = block_at(static_cast<char*>(p));
  if (!b || b->p != p || b->freed) {
    note(b && b->p == p ? "cudaFree: freed twice" : "cudaFree: not a device allocation");
    return set_error(cudaErrorInvalidValue);
  }
  const DeviceScope on_device;
  memset(b->p, 0xff, b->size);
  if (guard) {  // each untouched page makes the guard's mprotect faster
    const auto low = (reinterpret_cast<uintptr_t>(b->p) + kPage - 1) / kPage * kPage;
    const auto high = (reinterpret_cast<uintptr_t>(b->p) + b->size) / kPage * kPage;
    if (low < high) madvise(reinterpret_cast<void*>(low), high - low, MADV_DONTNEED);
  }
  COC_POISON(b->p, b->size);
  b->freed = true;
  live_bytes -= b->size;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t n) {
  ENTER(cudaMallocHost);
  *p = nullptr;
  if (n == 0) return cudaSuccess;
  ++sync_count;  // it may wait
  registry<Pinned*>().push_back(new Pinned{new char[n], n, 0});
  *p = memset(registry<Pinned*>().back()->p, 0xff, n);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
  ENTER(cudaFreeHost);
  if (!p) return cudaSuccess;
  ++sync_count;  // it may wait; nothing says that it does
  Pinned* b = pinned_at(static_cast<char*>(p));
  if (!b || b->p != p) {
    note("cudaFreeHost: not memory of cudaMallocHost");
    return set_error(cudaErrorInvalidValue);
  }
  if (b->reads > 0) fail("", 0, "cudaFreeHost: %d pending copies read this memory", b->reads);
  std::erase(registry<Pinned*>(), b);
  delete[] b->p;
  delete b;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  ENTER(cudaMemcpyAsync);
  if (n == 0) return cudaSuccess;
  if (kind == cudaMemcpyDefault) return set_error(cudaErrorNotSupported);  // say the direction, so it can be checked
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!range_ok(d, n, to_device) || !range_ok(s, n, from_device)) {
    note("cudaMemcpy of " + std::to_string(n) + " bytes: wrong direction, or beyond an allocation");
    return set_error(cudaErrorInvalidValue);
  }
  const auto* c = static_cast<const char*>(s);
  if (Pinned* b = to_device && !from_device ? pinned_at(c) : nullptr) {  // read when it is its turn, not before
    if (n > static_cast<size_t>(b->p + b->size - c)) {
      note("cudaMemcpy of " + std::to_string(n) + " bytes: beyond an allocation of cudaMallocHost");
      return set_error(cudaErrorInvalidValue);
    }
    ++b->reads;
    enqueue(stream, [=] {
      const DeviceScope on_device;
      memcpy(d, s, n);
      --b->reads;
    });
    return cudaSuccess;
  }
  // Pageable memory: the call may wait. A source is staged before it returns.
  if (to_device != from_device && !(from_device && pinned_at(static_cast<char*>(d)))) ++sync_count;
  if (to_device && !from_device) {
    const auto staged = std::make_shared<std::vector<char>>(c, c + n);
    enqueue(stream, [=] {
      const DeviceScope on_device;
      memcpy(d, staged->data(), n);
    });
  } else {
    enqueue(stream, [=] {
      const DeviceScope on_device;
      memmove(d, s, n);
    });
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* d, int value, size_t n, cudaStream_t stream) {
  ENTER(cudaMemsetAsync);
  if (n == 0) return cudaSuccess;
  if (!range_ok(d, n, true)) {
    note("cudaMemset of " + std::to_string(n) + " bytes: beyond a device allocation");
    return set_error(cudaErrorInvalidValue);
  }
  enqueue(stream, [=] {
    const DeviceScope on_device;
    memset(d, value, n);
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  ENTER(cudaStreamCreateWithFlags);
  registry<CUstream_st*>().push_back(*s = new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  ENTER(cudaStreamSynchronize);
  ++sync_count;
  drain(real(s));
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  ENTER(cudaStreamDestroy);
  ++sync_count;
  drain(real(s));
  std::erase(registry<CUstream_st*>(), s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  ENTER(cudaEventCreateWithFlags);
  registry<CUevent_st*>().push_back(*e = new CUevent_st);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  ENTER(cudaEventDestroy);
  std::erase(registry<CUevent_st*>(), real(e));
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  ENTER(cudaEventRecord);
  const auto state = real(e)->state;
  const uint64_t version = ++state->recorded;
  state->in = real(s);
  enqueue(s, [=] {
    state->done = std::max(state->done, version);
    state->time = std::chrono::steady_clock::now();
  });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  ENTER(cudaStreamWaitEvent);
  const auto state = real(e)->state;
  if (state->recorded == 0) fail("", 0, "cudaStreamWaitEvent: the event was never recorded, so nothing would wait");
  real(s)->queue.push_back({.wait = state, .version = state->recorded, .in = state->in});
  if (!defer) drain(real(s));
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  ENTER(cudaDeviceSynchronize);
  ++sync_count;
  drain_all();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  ENTER(cudaEventQuery);
  const auto state = real(e)->state;
  return state->done == state->recorded ? cudaSuccess : set_error(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  ENTER(cudaEventSynchronize);
  ++sync_count;
  const auto state = real(e)->state;
  while (state->done < state->recorded) step(state->in);  // and no further
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  ENTER(cudaEventElapsedTime);
  for (const cudaEvent_t e : {a, b}) {
    if (real(e)->state->recorded == 0) return set_error(cudaErrorInvalidResourceHandle);
    if (e->state->done < e->state->recorded) return set_error(cudaErrorNotReady);
  }
  *ms = std::chrono::duration<float, std::milli>(b->state->time - a->state->time).count();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* n) {
  ENTER(cudaGetDeviceCount);
  *n = kDevices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  ENTER(cudaSetDevice);
  if (device < 0 || device >= kDevices) return set_error(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  ENTER(cudaGetDevice);
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  ENTER(cudaGetDeviceProperties);
  if (device < 0 || device >= kDevices) return set_error(cudaErrorInvalidDevice);
  *p = {};
  snprintf(p->name, sizeof p->name, "emulated device %d", device);
  const char* sm = getenv("COC_SM");
  p->major = (sm ? atoi(sm) : 86) / 10;
  p->minor = (sm ? atoi(sm) : 86) % 10;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  ENTER(cudaMemGetInfo);
  const char* limit = getenv("COC_MEM_LIMIT");
  *total = limit ? strtoull(limit, nullptr, 10) : size_t{16} << 30;
  *free = *total - std::min(*total, live_bytes);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* kernel) {
  ENTER(cudaFuncGetAttributes);
  if (flag("COC_NO_CODE")) return set_error(cudaErrorNoKernelImageForDevice);
  *a = {};
  return kernel ? cudaSuccess : set_error(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  ENTER(cudaFuncSetAttribute);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return set_error(cudaErrorNotSupported);
  if (value < 0 || static_cast<size_t>(value) > kSharedOptIn) return set_error(cudaErrorInvalidValue);
  registry<SharedOptIn>().push_back({kernel, static_cast<size_t>(value)});
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = flag("COC_NO_DEVICE") ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
  return std::exchange(last_error, cudaSuccess);
}
const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    default:
      return "cudaError(other)";
  }
}
const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorInsufficientDriver ? "CUDA driver version is insufficient for CUDA runtime version"
                                          : cudaGetErrorName(e);
}

}  // extern "C"
