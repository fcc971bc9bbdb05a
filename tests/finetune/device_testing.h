// SPDX-License-Identifier: Apache-2.0
// For tests of a backend with memory of its own: the CUDA sources on the emulated device, or the library that
// BANTAM_TEST_BACKEND names.
#pragma once
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "model_testing.h"
#include "trace_testing.h"

namespace bantam::testing {

inline const std::string kDevice =
    std::getenv("BANTAM_TEST_BACKEND") ? std::getenv("BANTAM_TEST_BACKEND") : BANTAM_CUDA_ON_CPU;

inline ModelConfig small(int layers = 2) {
  ModelConfig c = tiny_config();
  c.num_hidden_layers = layers;
  return c;
}

/// Of a to b, relative to b, in the 2-norm.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double d = 0, n = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    d += std::pow(static_cast<double>(a[i]) - b[i], 2);
    n += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(d / n);
}

/// How many calls so far waited for the emulated device, or might have waited for a real one; a real one: 0.
inline unsigned long sync_count() {
  static const auto count =
      reinterpret_cast<unsigned long (*)()>(dlsym(dlopen(kDevice.c_str(), RTLD_NOW | RTLD_NOLOAD), "coc_sync_count"));
  return count ? count() : 0;
}
/// How many of the calls that f makes do.
inline unsigned long waits(const std::function<void()>& f) {
  const unsigned long before = sync_count();
  f();
  return sync_count() - before;
}

}  // namespace bantam::testing
