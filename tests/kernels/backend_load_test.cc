// SPDX-License-Identifier: Apache-2.0
// Loading of backend libraries, and what is said when something is missing.
#include <dlfcn.h>

#include <cstdlib>

#include "kernels/product.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/device_harness.h"

using namespace bantam;
using namespace bantam::test;

namespace {

// The Error that f throws; fails when it throws none.
template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error");
  return Error(ErrorCode::internal, "");
}
bool contains(const Error& e, const std::string& part) {
  INFO(e.what());
  return std::string(e.what()).find(part) != std::string::npos;
}
void run_rms_norm(Context& ctx) {
  const DeviceMatrix x(ctx, DType::f32, 1, 4, {1, 2, 3, 4});
  const DeviceVector<float> weight(ctx, std::vector<float>(4, 1.0f)), rstd(ctx, 1);
  rms_norm(ctx, {.x = x, .weight = weight.get(), .y = x, .rstd = rstd.get()});
}

TEST_CASE("a backend library is loaded by path and by name, once") {
  const Backend& by_path = load_backend(BANTAM_TEST_BACKENDS "/libbantam_test_empty.so");
  CHECK(std::string(by_path.name) == "empty");
  CHECK(&load_backend("test_empty") == &by_path);
  CHECK(&load_backend("test_empty") == &by_path);
  CHECK(std::string(cpu_backend().name) == "cpu");
}

TEST_CASE("a backend that is not there") {
  const Error by_name = error_of([] { Context ctx({.backend = "no_such_backend"}); });
  CHECK(by_name.code() == ErrorCode::device);
  CHECK(contains(by_name, "backend 'no_such_backend' cannot be loaded"));
  CHECK(contains(by_name, "libbantam_no_such_backend.so"));
  CHECK_FALSE(by_name.hint().empty());
  const Error by_path = error_of([] { Context ctx({.backend = "/no/such/file.so"}); });
  CHECK(by_path.code() == ErrorCode::device);
  CHECK(contains(by_path, "/no/such/file.so"));
}

TEST_CASE("a library that is no backend, or one of another version") {
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&std::strtod), &info) != 0);  // some library that is always there
  if (std::string(info.dli_fname).find(".so") != std::string::npos) {
    const Error e = error_of([&] { load_backend(info.dli_fname); });
    CHECK(e.code() == ErrorCode::device);
    CHECK(contains(e, "not a backend library of this version"));
  }
  const Error e = error_of([] { load_backend(BANTAM_TEST_BACKENDS "/libbantam_test_old.so"); });
  CHECK(e.code() == ErrorCode::device);
  CHECK(contains(e, str("not a backend library of this version of bantam (table version ", Backend::kAbi, ")")));
}

TEST_CASE("an op that a backend lacks") {
  Context ctx({.num_threads = 1, .backend = BANTAM_TEST_BACKENDS "/libbantam_test_empty.so"});
  const Error e = error_of([&] { run_rms_norm(ctx); });
  CHECK(e.code() == ErrorCode::device);
  CHECK(contains(e, "backend 'empty' has no op 'rms_norm'"));
}

#ifdef BANTAM_CUDA_ON_CPU
// While this lives, calls of the emulated CUDA see the variable.
struct Fault {
  const char* name;
  Fault(const char* n, const char* value) : name(n) { setenv(name, value, 1); }
  ~Fault() { unsetenv(name); }
};

TEST_CASE("cuda: table version and missing device") {
  CHECK(std::string(load_backend("cuda_on_cpu").name) == "cuda_on_cpu");
  void* library = dlopen(BANTAM_CUDA_ON_CPU, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto entry = reinterpret_cast<const Backend* (*)(int)>(dlsym(library, "bantam_backend"));
  REQUIRE(static_cast<bool>(entry));
  CHECK(entry(Backend::kAbi) == &load_backend(BANTAM_CUDA_ON_CPU));
  CHECK(entry(Backend::kAbi + 1) == nullptr);
  const Fault fault("COC_NO_DEVICE", "1");
  const Error e = error_of([&] { entry(Backend::kAbi); });
  CHECK(e.code() == ErrorCode::device);
  CHECK(contains(e, "no usable CUDA device: cudaErrorInsufficientDriver; driver's CUDA version none, needed 1"));
}

TEST_CASE("cuda: devices, their memory, the choice of one") {
  const Backend& backend = load_backend(BANTAM_CUDA_ON_CPU);
  REQUIRE(backend.device_count() == 2);
  const DeviceInfo info = backend.device_info(1);
  CHECK(std::string(info.name) == "emulated device 1");
  CHECK(info.major == 8);
  CHECK(info.has_code);
  CHECK(info.memory_free <= info.memory_total);
  CHECK(contains(error_of([&] { backend.device_info(2); }), "no device 2; this machine has 2"));
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  CHECK(ctx.device_name() == "cuda_on_cpu:0");
  CHECK(Context({.num_threads = 1}).device_name() == "cpu");
  const Error e = error_of([] { Context other({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU, .device = 1}); });
  CHECK(e.code() == ErrorCode::device);
  CHECK(contains(e, "device 1 asked for, but this process computes on device 0"));
  const Fault fault("COC_NO_CODE", "1");
  CHECK_FALSE(backend.device_info(0).has_code);
  CHECK(contains(error_of([] { Context again({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU}); }),
                 "emulated device 0, has compute capability 8.6; this build has no code for it"));
}

TEST_CASE("cuda: bytes held, and seconds between marks") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const Backend& backend = ctx.backend();
  const MemoryUse before = backend.memory_use();
  const size_t free_before = backend.device_info(0).memory_free, large = before.most - before.now + 4096;
  void* p = backend.allocate(large);
  MemoryUse use = backend.memory_use();
  CHECK(use.now == before.now + large);
  CHECK(use.most == use.now);
  CHECK(backend.device_info(0).memory_free == free_before - large);
  backend.release(p);
  use = backend.memory_use();
  CHECK(use.now == before.now);
  CHECK(use.most == before.now + large);
  const size_t pinned = 4096;
  p = backend.allocate_pinned(pinned);
  use = backend.memory_use();
  CHECK(use.pinned == before.pinned + pinned);
  CHECK(use.now == before.now);
  backend.release_pinned(p);
  use = backend.memory_use();
  CHECK(use.pinned == before.pinned);
  CHECK(backend.device_info(0).memory_free == free_before);

  backend.range_begin("a range");
  backend.time_mark(0);
  run_rms_norm(ctx);
  backend.time_mark(3);
  backend.range_end();
  CHECK(backend.seconds_between(0, 3) > 0);
  CHECK(backend.seconds_between(0, 0) == 0);
  backend.synchronize();
}

TEST_CASE("cuda: errors of the runtime and of the library become Error") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const Backend& backend = ctx.backend();
  {
    const Fault fault("COC_FAIL", "cudaMalloc:2");  // cudaErrorMemoryAllocation
    CHECK(backend.allocate(64) == nullptr);
  }
  {
    const Fault fault("COC_FAIL", "cudaMalloc:1");
    CHECK(contains(error_of([&] { backend.allocate(64); }), "cudaMalloc failed: cudaErrorInvalidValue"));
  }
  {
    const Fault fault("COC_FAIL", "cudaLaunchKernel:9");
    const Error e = error_of([&] { run_rms_norm(ctx); });
    CHECK(e.code() == ErrorCode::device);
    CHECK(contains(e, "kernel launch failed: cudaErrorInvalidConfiguration"));
    CHECK(contains(e, "at rms_norm_cuda.cu:"));
  }
  run_rms_norm(ctx);  // and afterwards all is well

  const DeviceMatrix a(ctx, DType::f32, 2, 3, random_values(6, 1)), c(ctx, DType::f32, 2, 2);
  ProductArgs args;
  args.terms[0] = {a, a, BLayout::nt, false};
  args.c = c;
  {
    const Fault fault("COC_MEM_LIMIT", "4096");
    const Error e = error_of([&] { product(ctx, args); });
    CHECK(e.code() == ErrorCode::does_not_fit);
    CHECK(contains(e, "bytes of scratch"));
  }
  {
    const Fault fault("COC_FAIL", "cublasLtMatmul:1");
    const Error e = error_of([&] { product(ctx, args); });
    CHECK(e.code() == ErrorCode::device);
    CHECK(contains(e, "cublasLtMatmul failed: CUBLAS_STATUS_EXECUTION_FAILED"));
  }
  product(ctx, args);
  CHECK(c.host()[1] == c.host()[2]);
}

TEST_CASE("cuda: arguments that the backend does not take") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const DeviceMatrix x(ctx, DType::f32, 2, 2);
  ProductArgs args;
  args.c = x;
  args.c.dtype = DType::f16;  // past the entry's own check, as another caller could
  const Error type = error_of([&] { ctx.backend().product(ctx, args); });
  CHECK(type.code() == ErrorCode::device);
  CHECK(contains(type, "product: c is f16; expected f32 or bf16"));
  args.c = x;
  args.terms[0].a = ConstTensorView(x).columns(0, 0);
  args.terms[0].b = ConstTensorView(x).columns(0, 0);
  const Error empty = error_of([&] { product(ctx, args); });
  CHECK(empty.code() == ErrorCode::device);
  CHECK(contains(empty, "the reduction has length 0"));
}
#endif

}  // namespace
