// SPDX-License-Identifier: Apache-2.0
// Where cuDNN is looked for. BANTAM_CUDNN_LIBRARY comes from the build: the file that was there when it was configured.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cudnn_graph.h"

namespace bantam::cuda {

void* open_cudnn(std::string* why) {
  std::vector<std::string> files = {BANTAM_CUDNN_LIBRARY, "libcudnn.so.9"};
  if (const char* given = std::getenv("BANTAM_CUDNN"); given && *given) {
    if (std::strcmp(given, "0") == 0) {
      *why = "switched off by BANTAM_CUDNN=0";
      return nullptr;
    }
    files = {given};
  }
  for (const std::string& file : files) {
    if (file.empty()) continue;
    // Local: another copy in this process, such as PyTorch's, is left alone.
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* words = dlerror();
    *why = words ? words : "cannot load " + file;
  }
  return nullptr;
}

}  // namespace bantam::cuda
