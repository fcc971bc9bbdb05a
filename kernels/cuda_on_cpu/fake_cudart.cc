// SPDX-License-Identifier: Apache-2.0
// Fake of the slice of the CUDA runtime that the backend uses, with the real prototypes; a call that is missing here
// and in fake_streams.cc fails to link. Device memory is one reserved address range, handed out by a bump allocator
// that reuses no address: new and freed memory holds 0xFF (NaN), AddressSanitizer sees red zones around every
// allocation.
#include "fake_cudart.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

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
  int uses;  // copies in a queue that have yet to read or write it
};
char* range;
size_t bump, live_bytes;
bool guard;
int device_depth;
cudaError_t last_error = cudaSuccess;
std::vector<Block>& blocks() {
  return registry<Block>();
}  // sorted, since addresses only grow
Block* block_at(const char* p) {  // the block that begins at or before p
  auto it =
      std::upper_bound(blocks().begin(), blocks().end(), p, [](const char* a, const Block& b) { return a < b.p; });
  return it == blocks().begin() ? nullptr : &it[-1];
}
void note(const std::string& text) {
  fprintf(stderr, "cuda_on_cpu: ERROR: %s\n", text.c_str());
}

Pinned* pinned_at(const char* p) {
  for (Pinned* b : registry<Pinned*>())
    if (p >= b->p && p < b->p + b->size) return b;
  return nullptr;
}
bool range_ok(const void* p, size_t n, bool device) {
  const size_t left = device_bytes_at(p);
  return device ? left >= n : left == 0;
}
}  // namespace

bool flag(const char* name) {
  const char* e = getenv(name);
  return e && *e && *e != '0';
}
cudaError_t set_error(cudaError_t e) {
  return e == cudaSuccess ? e : last_error = e;
}
void init() {
  if (range) return;
  void* p = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("", 0, "no address space for device memory");
  range = static_cast<char*>(p);
  init_streams();
  guard = flag("COC_GUARD");
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
  if (b->uses > 0) fail("", 0, "cudaFreeHost: %d pending copies use this memory", b->uses);
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
  const auto* host = to_device ? c : static_cast<const char*>(d);
  if (Pinned* b = to_device != from_device ? pinned_at(host) : nullptr) {  // used when it is its turn, not before
    if (n > static_cast<size_t>(b->p + b->size - host)) {
      note("cudaMemcpy of " + std::to_string(n) + " bytes: beyond an allocation of cudaMallocHost");
      return set_error(cudaErrorInvalidValue);
    }
    ++b->uses;
    enqueue(stream, [=] {
      const DeviceScope on_device;
      memcpy(d, s, n);
      --b->uses;
    });
    return cudaSuccess;
  }
  if (to_device != from_device)
    ++sync_count;  // pageable memory: the call may wait; a source is staged before it returns
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
