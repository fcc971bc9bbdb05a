// SPDX-License-Identifier: Apache-2.0
// Which device to compute on, from the words that recipes and flags use.
#pragma once
#include <string>

#include "context.h"

namespace bantam {

struct DeviceChoice {
  ContextOptions options;  ///< backend and device are set
  std::string note;        ///< auto chose the CPU: why no GPU is used, for people
};

/// `device`: "cpu"; "cuda" or "cuda:N", the N-th GPU; "auto", the first GPU that the CUDA backend has code for, else
/// the CPU. Only where the NVIDIA driver reports a GPU does auto load the CUDA backend (half a gigabyte of libraries).
/// `cuda_library`: name or path of that backend; a path is loaded without asking the driver.
/// Error(device): cuda asked for and not usable, in words. Error(usage): another word.
DeviceChoice choose_device(const std::string& device, const std::string& cuda_library = "cuda");

/// GPUs that the NVIDIA driver reports; asks libcuda itself, without the CUDA backend. 0: no driver or no GPU.
int nvidia_gpu_count();

}  // namespace bantam
