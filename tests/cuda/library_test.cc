// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's library as nvcc built it, on a machine where it sees no GPU: it loads, and says in words why it
// cannot be used. On a machine with one, CUDA_VISIBLE_DEVICES hides it. BANTAM_CUDA_LIBRARY is its path; the folder is
// on the loader's path, so that it is found by name too.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>

#include "kernels/backend.h"
#include "kernels/context.h"
#include "kernels/error.h"

using namespace bantam;

namespace {

Error error_of(const std::string& backend) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  try {
    load_backend(backend);
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error");
  return Error(ErrorCode::internal, "");
}

}  // namespace

TEST_CASE("without a GPU the library says so, each time") {
  for (const std::string name : {BANTAM_CUDA_LIBRARY, BANTAM_CUDA_LIBRARY, "cuda"}) {
    CAPTURE(name);
    const Error e = error_of(name);
    CHECK(e.code() == ErrorCode::device);
    INFO(e.what());
    CHECK(std::string(e.what()).starts_with("no usable CUDA device: "));
    CHECK(std::string(e.what()).find("; driver's CUDA version ") != std::string::npos);
    CHECK(std::string(e.what()).find(", needed 1") != std::string::npos);  // 12 or later
    CHECK(e.hint().find("device: cpu") != std::string::npos);
  }
  try {
    Context ctx({.backend = BANTAM_CUDA_LIBRARY});
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::device);
  }
}

TEST_CASE("the table is given for its own version only") {
  void* library = dlopen(BANTAM_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE_MESSAGE(library != nullptr, dlerror());
  const auto entry = reinterpret_cast<const Backend* (*)(int)>(dlsym(library, "bantam_backend"));
  REQUIRE(static_cast<bool>(entry));
  CHECK(entry(Backend::kAbi + 1) == nullptr);
  CHECK(entry(Backend::kAbi - 1) == nullptr);
}
