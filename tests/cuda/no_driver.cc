// SPDX-License-Identifier: Apache-2.0
// A CUDA driver without a device, under the name libcuda.so.1: it loads any code and runs none. With it cuDNN makes
// plans for the devices of cudnn_plans_test.cc on a machine that has neither a GPU nor a driver.
#include <cstddef>
#include <cstring>

namespace {
constexpr int kStub = 34;  // CUDA_ERROR_STUB_LIBRARY
int handle(void** h) {
  static char anything[64];
  *h = anything;
  return 0;
}
}  // namespace

extern "C" {
int cuInit(unsigned) {
  return kStub;
}
int cuDriverGetVersion(int* v) {
  *v = 13000;
  return 0;
}
int cuDeviceGetCount(int* n) {
  *n = 0;
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = nullptr;
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "no driver";
  return 0;
}
int cuModuleLoadData(void** module, const void*) {
  return handle(module);
}
int cuModuleGetFunction(void** function, void*, const char*) {
  return handle(function);
}
int cuModuleUnload(void*) {
  return 0;
}
int cuLibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*, unsigned) {
  return handle(library);
}
int cuLibraryUnload(void*) {
  return 0;
}
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  return handle(kernel);
}
int cuKernelGetFunction(void** function, void*) {
  return handle(function);
}
int cuTensorMapEncodeTiled() {
  return kStub;
}
int cuTensorMapEncodeIm2col() {
  return kStub;
}
int cuGetProcAddress(const char* name, void** function, int, unsigned long long) {
  struct Entry {
    const char* name;
    void* function;
  };
  static const Entry kEntries[] = {{"cuInit", reinterpret_cast<void*>(cuInit)},
                                   {"cuDriverGetVersion", reinterpret_cast<void*>(cuDriverGetVersion)},
                                   {"cuDeviceGetCount", reinterpret_cast<void*>(cuDeviceGetCount)},
                                   {"cuCtxGetCurrent", reinterpret_cast<void*>(cuCtxGetCurrent)},
                                   {"cuLibraryLoadData", reinterpret_cast<void*>(cuLibraryLoadData)},
                                   {"cuLibraryUnload", reinterpret_cast<void*>(cuLibraryUnload)},
                                   {"cuLibraryGetKernel", reinterpret_cast<void*>(cuLibraryGetKernel)},
                                   {"cuKernelGetFunction", reinterpret_cast<void*>(cuKernelGetFunction)}};
  *function = nullptr;
  for (const Entry& e : kEntries)
    if (std::strcmp(e.name, name) == 0) *function = e.function;
  return *function ? 0 : 500;  // CUDA_ERROR_NOT_FOUND
}
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* status) {
  const int e = cuGetProcAddress(name, function, version, flags);
  if (status) *status = *function ? 0 : 1;
  return e;
}

// Found by name, and never called.
#define UNUSED(name) \
  int name() {       \
    return kStub;    \
  }
UNUSED(cuCtxGetLimit)
UNUSED(cuCtxPopCurrent)
UNUSED(cuCtxPushCurrent)
UNUSED(cuDeviceGet)
UNUSED(cuGetErrorName)
UNUSED(cuKernelGetAttribute)
UNUSED(cuKernelSetAttribute)
UNUSED(cuLaunchCooperativeKernel)
UNUSED(cuLaunchKernel)
UNUSED(cuLaunchKernelEx)
UNUSED(cuLibraryLoadFromFile)
UNUSED(cuLinkAddData)
UNUSED(cuLinkComplete)
UNUSED(cuLinkCreate)
UNUSED(cuLinkDestroy)
UNUSED(cuOccupancyMaxPotentialClusterSize)
UNUSED(cuStreamGetCtx)
#undef UNUSED
}
