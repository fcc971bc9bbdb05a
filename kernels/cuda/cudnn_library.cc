// SPDX-License-Identifier: Apache-2.0
// Where cuDNN is looked for. BANTAM_CUDNN_LIBRARY comes from the build: the file that was there when it was configured.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "../error.h"
#include "cudnn_graph.h"

namespace bantam::cuda {

void* open_cudnn(std::string* why) {
  if (const char* e = std::getenv("BANTAM_CUDNN"); e && std::strcmp(e, "0") == 0) {
    *why = "switched off by BANTAM_CUDNN=0";
    return nullptr;
  }
  // Local: another copy in this process, such as PyTorch's, is left alone.
  for (const char* file : {"libcudnn.so.9", BANTAM_CUDNN_LIBRARY}) {
    if (!*file) continue;
    if (void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return library;
    const char* words = dlerror();
    *why = words ? words : str("cannot load ", file);
  }
  return nullptr;
}

}  // namespace bantam::cuda
