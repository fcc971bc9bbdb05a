// SPDX-License-Identifier: Apache-2.0
#include "device_choice.h"

#include <dlfcn.h>

#include <charconv>

#include "backend.h"
#include "error.h"

namespace bantam {

int nvidia_gpu_count() {
  static const int count = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) return 0;
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
    int n = 0;
    return init && get_count && init(0) == 0 && get_count(&n) == 0 ? n : 0;
  }();
  return count;
}

DeviceChoice choose_device(const std::string& device, const std::string& cuda_library) {
  if (device == "cpu") return {};
  if (device == "auto") {
    if (cuda_library.find('/') == std::string::npos && nvidia_gpu_count() == 0)
      return {.options = {}, .note = "the NVIDIA driver reports no GPU"};
    try {
      const Backend& backend = load_backend(cuda_library);
      for (int d = 0; d < backend.device_count(); ++d)
        if (backend.device_info(d).has_code)
          return {.options = {.num_threads = 0, .backend = cuda_library, .device = d}, .note = {}};
      return {.options = {}, .note = "the CUDA backend has no code for the GPUs of this machine"};
    } catch (const Error& e) {
      return {.options = {}, .note = e.what()};
    }
  }
  int index = 0;
  const std::string number = device.starts_with("cuda:") ? device.substr(5) : device == "cuda" ? "0" : "";
  const auto [end, ec] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (number.empty() || ec != std::errc() || end != number.data() + number.size() || index < 0)
    throw Error(ErrorCode::usage, str("device: found '", device, "', expected auto, cpu, cuda or cuda:N"));
  load_backend(cuda_library).device_info(index);  // throws where it is not there
  return {.options = {.num_threads = 0, .backend = cuda_library, .device = index}, .note = {}};
}

}  // namespace bantam
