// SPDX-License-Identifier: Apache-2.0
// with_device LIBRARY PROGRAM [ARGUMENT...]: runs a test program on a backend library, as BANTAM_TEST_BACKEND. Exit 77,
// which ctest takes for skipped, when the library finds no device.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/backend.h"
#include "kernels/error.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: with_device LIBRARY PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  try {
    bantam::load_backend(argv[1]);
  } catch (const bantam::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return std::string(e.what()).starts_with("no usable CUDA device") ? 77 : 1;
  }
  setenv("BANTAM_TEST_BACKEND", argv[1], 1);
  execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 1;
}
