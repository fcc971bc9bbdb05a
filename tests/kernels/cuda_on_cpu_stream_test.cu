// SPDX-License-Identifier: Apache-2.0
// The emulated device's streams: pinned memory, events, waits, and uploads through staging.
#include "cuda_on_cpu_harness.h"
// The portable header comes first.
#include <cstdlib>

#include "kernels/cuda/pinned.h"
#include "kernels/cuda/staging.h"
#include "kernels/device_scratch.h"

using namespace bantam;
using namespace bantam::cuda;
using namespace bantam::cuda::test;

extern "C" unsigned long coc_sync_count();

namespace {

// ---- pinned memory, events, staging ----

bool deferred() {
  const char* e = getenv("COC_DEFER");
  return e && *e == '1';
}
// What the device got of pinned memory that says 1 when the copy is asked for, and 2 right after.
int copied_from_pinned() {
  void* p = nullptr;
  cu_check(cudaMallocHost(&p, 64), "cudaMallocHost");
  int* const host = static_cast<int*>(p);
  CHECK(host[15] == -1);  // new memory is 0xFF
  const Device<int> to(16);
  for (int i = 0; i < 16; ++i) host[i] = 1;
  cu_check(cudaMemcpyAsync(to.get(), host, 64, cudaMemcpyHostToDevice, stream()), "copy");
  for (int i = 0; i < 16; ++i) host[i] = 2;
  const int got = to.host()[15];
  cu_check(cudaFreeHost(p), "cudaFreeHost");
  return got;
}
TEST_CASE("a copy out of pinned memory reads it when the stream comes to it") {
  CHECK(copied_from_pinned() == (deferred() ? 2 : 1));
  const Device<int> to(16);
  if (deferred())
    check_words("1 pending copies use this memory", [&] {
      void* p = nullptr;
      cu_check(cudaMallocHost(&p, 64), "cudaMallocHost");
      cu_check(cudaMemcpyAsync(to.get(), p, 64, cudaMemcpyHostToDevice, stream()), "copy");
      cu_check(cudaFreeHost(p), "cudaFreeHost");
    });
  check_words("beyond an allocation of cudaMallocHost", [&] {
    void* p = nullptr;
    cu_check(cudaMallocHost(&p, 32), "cudaMallocHost");
    cu_check(cudaMemcpyAsync(to.get(), p, 64, cudaMemcpyHostToDevice, stream()), "copy");
  });
  check_words("not memory of cudaMallocHost", [&] { cu_check(cudaFreeHost(to.get()), "cudaFreeHost"); });
}

TEST_CASE("an event is done when the stream has come to its last record, and waiting for it waits for no more") {
  cudaEvent_t first, second;
  for (cudaEvent_t* e : {&first, &second})
    cu_check(cudaEventCreateWithFlags(e, cudaEventDisableTiming), "cudaEventCreate");
  const cudaError_t pending = deferred() ? cudaErrorNotReady : cudaSuccess;
  CHECK(cudaEventQuery(first) == cudaSuccess);  // never recorded
  cu_check(cudaEventRecord(first, stream()), "cudaEventRecord");
  CHECK(cudaEventQuery(first) == pending);
  CHECK(cudaGetLastError() == pending);
  cu_check(cudaEventRecord(second, stream()), "cudaEventRecord");
  const unsigned long before = coc_sync_count();
  cu_check(cudaEventSynchronize(first), "cudaEventSynchronize");
  CHECK(coc_sync_count() == before + 1);
  CHECK(cudaEventQuery(first) == cudaSuccess);
  CHECK(cudaEventQuery(second) == pending);
  cu_check(cudaEventRecord(first, stream()), "cudaEventRecord");
  CHECK(cudaEventQuery(first) == pending);                // of the last record
  cu_check(cudaEventDestroy(first), "cudaEventDestroy");  // it may be pending
  cu_check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  CHECK(cudaEventQuery(second) == cudaSuccess);
  cu_check(cudaEventDestroy(second), "cudaEventDestroy");
  static_cast<void>(cudaGetLastError());
  check_words("destroyed or foreign cudaEvent_t", [&] { static_cast<void>(cudaEventQuery(second)); });
}

TEST_CASE("calls that wait for the device are counted, others not") {
  const Device<int> a(16), b(16);
  int host[16] = {};
  const auto waits = [](const std::function<void()>& f) {
    const unsigned long before = coc_sync_count();
    f();
    return coc_sync_count() - before;
  };
  CHECK(waits([&] { fill(a.get(), 0, 64); }) == 0);
  CHECK(waits([&] { cu_check(cudaMemcpyAsync(b.get(), a.get(), 64, cudaMemcpyDeviceToDevice, stream()), "copy"); }) ==
        0);
  CHECK(waits([&] { upload(a.get(), host, 64); }) == 2);  // the copy out of pageable memory may wait as well
  CHECK(waits([&] { download(host, a.get(), 64); }) == 2);
  CHECK(waits([&] { cu_check(cudaDeviceSynchronize(), "synchronize"); }) == 1);
  CHECK(waits([&] { release(allocate(8)); }) == 2);
}

TEST_CASE("upload_async: in order with kernels, the host's memory is free at once, and it waits for room alone") {
  constexpr size_t kInts = 15000, kCopies = 41;  // four copies a half of the 256 KiB that staging begins with
  std::vector<int> host(kInts);
  const Device<int> to(kInts * kCopies), again(kInts);
  upload_async(to.get(), host.data(), 4);
  cu_check(cudaStreamSynchronize(stream()), "synchronize");
  const unsigned long before = coc_sync_count();
  for (size_t k = 0; k < kCopies; ++k) {
    for (size_t i = 0; i < kInts; ++i) host[i] = static_cast<int>(k * kInts + i);
    upload_async(to.get() + k * kInts, host.data(), kInts * sizeof(int));
    upload_async(again.get(), host.data(), sizeof(int));  // over the one before: the order shows
    upload_async(to.get(), host.data(), 0);
  }
  if (deferred())  // each half but the two first had to be waited for
    CHECK((coc_sync_count() - before >= 7 && coc_sync_count() - before <= 9));
  else
    CHECK(coc_sync_count() == before);
  const auto got = to.host();
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != static_cast<int>(i);
  CHECK(wrong == 0);
  CHECK(again.host()[0] == static_cast<int>((kCopies - 1) * kInts));

  // Larger than staging: it grows, with copies still on their way out of it.
  std::vector<int> large(300000, 7);
  const Device<int> to_large(large.size());
  host.assign(kInts, 3);
  upload_async(to.get(), host.data(), kInts * sizeof(int));
  upload_async(to_large.get(), large.data(), large.size() * sizeof(int));
  large.assign(large.size(), 8);
  CHECK(to.host()[kInts - 1] == 3);
  CHECK(to_large.host() == std::vector<int>(300000, 7));
  setenv("COC_FAIL", "cudaMallocHost:2", 1);
  CHECK_THROWS_WITH_AS(upload_async(to.get(), std::vector<int>(kInts * kCopies).data(), kInts * kCopies * 4),
                       doctest::Contains("of pinned host memory"), Error);
  unsetenv("COC_FAIL");
  upload_async(to.get(), large.data(), 64);
  CHECK(to.host()[15] == 8);
}

TEST_CASE("reserved staging: exactly as large as asked for, kept while it is enough, and a larger upload is an error") {
  const std::vector<int> host(1000, 5);
  const Device<int> to(1000);
  const auto pinned = [] { return memory_use().pinned; };
  reserve_staging(0);
  CHECK(pinned() == 0);
  CHECK(staging_high() == 0);
  upload_async(to.get(), host.data(), 100);  // grows on demand
  CHECK(pinned() >= size_t{512} << 10);
  const size_t bytes = staging_bytes(1000);
  CHECK(bytes == 4096);
  reserve_staging(bytes);
  CHECK(pinned() == bytes);
  const unsigned long before = coc_sync_count();
  reserve_staging(bytes);
  CHECK(coc_sync_count() == before);
  for (int k = 0; k < 9; ++k) upload_async(to.get(), host.data(), 1000);
  CHECK(to.host()[249] == 5);
  CHECK(staging_high() == 1000);
  CHECK_THROWS_WITH_AS(upload_async(to.get(), host.data(), 1025),
                       "CUDA: an upload of 1025 bytes goes through 4352 bytes of pinned host memory; 4096 are reserved",
                       Error);
  reserve_staging(staging_bytes(200));
  CHECK(pinned() == bytes);  // it is enough
  CHECK_THROWS_AS(upload_async(to.get(), host.data(), 300), Error);
  setenv("COC_FAIL", "cudaMallocHost:2", 1);
  CHECK_THROWS_WITH_AS(reserve_staging(2 * bytes), "CUDA: no room for 8192 bytes of pinned host memory", Error);
  unsetenv("COC_FAIL");
  reserve_staging(2 * bytes);
  CHECK(pinned() == 2 * bytes);
  upload_async(to.get(), host.data(), 2000);
  CHECK(to.host()[499] == 5);
  reserve_staging(0);
  CHECK(pinned() == 0);
}

TEST_CASE("copies from and to pinned memory wait for nothing, and marks say when they are done") {
  const Device<int> a(16);
  int* const from = static_cast<int*>(allocate_pinned(64));
  int* const to = static_cast<int*>(allocate_pinned(64));
  for (int i = 0; i < 16; ++i) from[i] = i, to[i] = -7;
  CHECK(reached(5));  // never marked
  const unsigned long before = coc_sync_count();
  upload_pinned(a.get(), from, 64);
  mark(0);
  download_pinned(to, a.get(), 64);
  mark(1);
  CHECK(reached(0) == !deferred());
  CHECK(coc_sync_count() == before);
  CHECK(to[15] == (deferred() ? -7 : 15));
  wait_for(0);
  CHECK(reached(0));
  CHECK(reached(1) == !deferred());  // and no further
  for (int i = 0; i < 16; ++i) from[i] = 99;
  wait_for(1);
  CHECK(to[15] == 15);
  // Who asks again and again sees the device go on.
  upload_pinned(a.get(), from, 64);
  mark(0);
  int asked = 0;
  while (!reached(0)) ++asked;
  CHECK(asked == (deferred() ? 33 : 0));
  CHECK(a.host()[3] == 99);
  release_pinned(from);
  release_pinned(to);
}

// ---- streams and events ----

__global__ void write_kernel(int* to, int value) {
  to[threadIdx.x] = value;
}
__global__ void copy_kernel(const int* from, int* to) {
  to[threadIdx.x] = from[threadIdx.x];
}
// A buffer that a second stream writes for the first to read, three times over; COC_TEST_WAITS says who waits.
TEST_CASE("deliberate: a buffer between two streams" * doctest::skip()) {
  const std::string waits = getenv("COC_TEST_WAITS");
  const Device<int> buffer(32), out(3 * 32);
  cudaStream_t second;
  cudaEvent_t written, read;
  cu_check(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "stream");
  cu_check(cudaEventCreateWithFlags(&written, cudaEventDisableTiming), "event");
  cu_check(cudaEventCreateWithFlags(&read, cudaEventDisableTiming), "event");
  for (int k = 0; k < 3; ++k) {
    cu_check(cudaEventRecord(read, stream()), "record");
    if (waits != "reader") cu_check(cudaStreamWaitEvent(second, read, 0), "wait");
    launch_on(second, write_kernel, 1, 32, 0, buffer.get(), 5 + k);
    cu_check(cudaEventRecord(written, second), "record");
    if (waits != "writer") cu_check(cudaStreamWaitEvent(stream(), written, 0), "wait");
    launch(copy_kernel, 1, 32, 0, buffer.get(), out.get() + 32 * k);
  }
  const auto h = out.host();
  bool right = true;
  for (int i = 0; i < 96; ++i) right = right && h[static_cast<size_t>(i)] == 5 + i / 32;
  cu_check(cudaEventDestroy(written), "event");
  cu_check(cudaEventDestroy(read), "event");
  cu_check(cudaStreamDestroy(second), "stream");
  if (right) _exit(0);
  dprintf(2, "wrong numbers");
  _exit(1);
}
TEST_CASE("work of two streams runs in the order of their events, and a missing wait shows") {
  const auto run = [](const char* waits, const char* order) {
    return last_words([&] {  // in a fresh process, which reads its environment anew
      setenv("COC_DEFER", "1", 1);
      setenv("COC_SCHED", order, 1);
      setenv("COC_TEST_WAITS", waits, 1);
      execl("/proc/self/exe", "test", "-tc=deliberate: a buffer between two streams", "--no-skip", nullptr);
    });
  };
  for (const char* order : {"fwd", "rev", "rand:1", "rand:2"}) CHECK(run("both", order) == "");
  CHECK(run("writer", "fwd").find("wrong numbers") != std::string::npos);
  CHECK(run("reader", "rev").find("wrong numbers") != std::string::npos);
}
TEST_CASE("events that are not there are reported") {
  check_words("never recorded", [] {
    cudaEvent_t e;
    cu_check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event");
    cu_check(cudaStreamWaitEvent(stream(), e, 0), "wait");
  });
  check_words("destroyed or foreign cudaEvent_t", [] {
    cudaEvent_t e;
    cu_check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event");
    cu_check(cudaEventDestroy(e), "event");
    cu_check(cudaEventRecord(e, stream()), "record");
  });
}

}  // namespace
