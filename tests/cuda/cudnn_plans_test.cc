// SPDX-License-Identifier: Apache-2.0
// The real cuDNN, where it is installed, on a machine without a GPU: the backend's graphs compile against its headers,
// it accepts what kernels/cudnn_shapes.h says that it takes, and its plans take no more workspace than is planned.
// Plans are made for devices that are described, with no_driver.cc for a driver; nothing is computed.
#include <cudnn_frontend.h>
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cudnn_shapes.h"
#include "kernels/error.h"

using namespace bantam;
using namespace bantam::cuda;
using cudnn_frontend::DeviceProperties;

namespace {

struct Device {
  const char* name;
  int capability, processors, shared_kib;
};
constexpr Device kHopper{"NVIDIA H100 80GB HBM3", 90, 132, 227}, kBlackwell{"NVIDIA B200", 100, 148, 227},
    kAmpere{"NVIDIA A100-SXM4-80GB", 80, 108, 163}, kAda{"NVIDIA L4", 89, 58, 99},
    kDesktop{"NVIDIA GeForce RTX 5090", 120, 170, 99};

// What cuDNN writes of a device, by the names that it uses.
std::shared_ptr<DeviceProperties> properties(const Device& d) {
  const std::string text =
      str(R"({"version":1,"deviceName":")", d.name, R"(","cudaDeviceId":0,"deviceVer":)", 10 * d.capability,
          R"(,"driverVer":13000,"totalGlobalMem":85000000000,"maxGridSize":[2147483647,65535,65535],)",
          R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":)", d.processors,
          R"(,"smCountOrigin":0,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)",
          d.shared_kib * 1024,
          R"(,"oversizedSharedMemoryPerBlock":0,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)",
          R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":9008,"isTccDriver":0,)",
          R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,"memoryBusWidth":5120,)",
          R"("l2CacheSize":52428800})");
  auto p = std::make_shared<DeviceProperties>();
  const auto e = p->deserialize(std::vector<uint8_t>(text.begin(), text.end()));
  return e.is_good() ? p : nullptr;
}

struct Model {
  int64_t heads, kv_heads, head_dim, window = 0;
};
struct Strip {
  int64_t sequences, longest, tokens;
};

TensorView view(int64_t rows, int64_t cols, DType t = DType::bf16) {
  return {reinterpret_cast<void*>(uintptr_t{4096}), t, rows, cols};
}

// The class of a strip, as cudnn_attention.cc makes it.
CudnnShape shape_of(const Device& d, const Model& m, const Strip& s, bool backward) {
  const int64_t q = m.heads * m.head_dim, k = m.kv_heads * m.head_dim;
  CudnnShape shape{.backward = backward,
                   .capability = d.capability,
                   .sequences = power_class(s.sequences, 1),
                   .length = power_class(s.longest, 128),
                   .tokens = backward ? token_class(s.tokens) : 0,
                   .heads = m.heads,
                   .kv_heads = m.kv_heads,
                   .head_dim = m.head_dim,
                   .window = m.window,
                   .scale = 0.125f,
                   .strides = {q, k, k, q, m.heads}};
  if (backward) shape.strides = {q, k, k, q, m.heads, q, q, k, k};
  return shape;
}

// Each plan takes a second.
void check_plans(const Device& d, const std::vector<Model>& models, const std::vector<Strip>& strips) {
  std::string why;
  AttentionLibrary library;
  library.version = cudnn_version(&why);
  library.capability = d.capability;
  const auto device = library.version == 0 ? nullptr : properties(d);
  if (!device) {
    MESSAGE("skipped: ", library.version == 0 ? why : cudnn_text(library.version) + " describes devices otherwise");
    return;
  }
  for (const Model& m : models)
    for (const Strip& s : strips) {
      const AttentionShape shape{.num_seqs = s.sequences,
                                 .heads = m.heads,
                                 .kv_heads = m.kv_heads,
                                 .head_dim = m.head_dim,
                                 .scale = 1,
                                 .window = m.window};
      const TensorView q = view(s.tokens, m.heads * m.head_dim), k = view(s.tokens, m.kv_heads * m.head_dim);
      const TensorView lse = view(s.tokens, m.heads, DType::f32);
      const AttentionArgs f{.shape = shape, .q = q, .k = k, .v = k, .o = q, .lse = lse, .math = Math::bf16};
      const AttentionBackwardArgs b{.shape = shape,
                                    .q = q,
                                    .k = k,
                                    .v = k,
                                    .o = q,
                                    .lse = lse,
                                    .dout = q,
                                    .delta = lse,
                                    .dq = q,
                                    .dk = k,
                                    .dv = k,
                                    .math = Math::bf16};
      CHECK(cudnn_takes(f, library));  // of the models here
      for (const bool backward : {false, true}) {
        if (backward && !cudnn_takes(b, library)) continue;
        const auto graph = cudnn_graph(shape_of(d, m, s, backward));
        graph->set_device_properties(device);
        size_t bytes = 0;
        const auto start = std::chrono::steady_clock::now();
        CHECK(cudnn_plan(*graph, nullptr, &bytes) == "");
        const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
        const size_t most = backward ? cudnn_workspace(b, library) : cudnn_workspace(f, library);
        CHECK(bytes <= most);
        MESSAGE(str(d.name, backward ? " backward" : " forward", ", heads ", m.heads, "/", m.kv_heads, " of ",
                    m.head_dim, ", ", s.sequences, " sequences: ", bytes, " of ", most, " bytes, plan in ", ms.count(),
                    " ms"));
      }
    }
}

const std::vector<Strip> kPacked = {{13, 900, 4096}}, kExtremes = {{64, 4000, 16384}, {1, 7, 7}};

TEST_CASE("cuDNN makes the plans of Hopper within their workspace") {
  check_plans(kHopper, {{32, 8, 128}, {16, 16, 64}, {14, 2, 64, 512}, {16, 8, 256}}, kPacked);
  check_plans(kHopper, {{32, 8, 128}}, kExtremes);
}
TEST_CASE("cuDNN makes the plans of Blackwell within their workspace") {
  check_plans(kBlackwell, {{32, 8, 128, 512}, {16, 16, 64}, {16, 8, 256}}, kPacked);
  check_plans(kBlackwell, {{32, 8, 128}}, kExtremes);
}
TEST_CASE("cuDNN makes the forward's plans of other devices") {
  check_plans(kAmpere, {{16, 8, 256}}, kPacked);
  check_plans(kAda, {{32, 8, 128, 512}}, kPacked);
  check_plans(kDesktop, {{16, 16, 72}}, kPacked);
}

TEST_CASE("the library is the one that BANTAM_CUDNN names, or none, and what is not there has the loader's words") {
  std::string why;
  setenv("BANTAM_CUDNN", "0", 1);
  CHECK(open_cudnn(&why) == nullptr);
  CHECK(why == "switched off by BANTAM_CUDNN=0");
  setenv("BANTAM_CUDNN", "/nowhere/libcudnn.so.9", 1);
  CHECK(open_cudnn(&why) == nullptr);
  CHECK(why.find("/nowhere/libcudnn.so.9: cannot open") < why.size());
  unsetenv("BANTAM_CUDNN");
}

// With another runtime of CUDA in the process than ours, two of them would disagree about the device.
TEST_CASE("the frontend loads no CUDA runtime of its own") {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) CHECK(line.find("libcudart") == std::string::npos);
}

}  // namespace
