// SPDX-License-Identifier: Apache-2.0
// What the tests of the emulated device share: memory on it, and the last words of a child that it ends.
#pragma once
#include "kernels/cuda/cu_portable.cuh"
// The portable header comes first.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/error.h"

namespace bantam::cuda::test {

template <class T>
class Device {
 public:
  explicit Device(size_t n) : n_(n), p_(static_cast<T*>(allocate(n * sizeof(T)))) {}
  explicit Device(const std::vector<T>& v) : Device(v.size()) { upload(p_, v.data(), n_ * sizeof(T)); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { release(p_); }
  T* get() const { return p_; }
  std::vector<T> host() const {
    std::vector<T> v(n_);
    download(v.data(), p_, n_ * sizeof(T));
    return v;
  }

 private:
  size_t n_;
  T* p_;
};

// What f writes to stderr when it ends the process, and how; empty when it returns. Runs in a child.
inline std::string last_words(const std::function<void()>& f) {
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGABRT, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    dup2(fds[1], 2);
    close(fds[0]);
    try {
      f();
      cu_check(cudaDeviceSynchronize(), "synchronize");
    } catch (const Error& e) {
      dprintf(2, "Error: %s", e.what());
      _exit(1);
    }
    _exit(0);
  }
  close(fds[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(fds[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(fds[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) text += str(" signal ", WTERMSIG(status));
  return status == 0 ? "" : text;
}
inline void check_words(const std::string& want, const std::function<void()>& f) {
  const std::string got = last_words(f);
  CHECK_MESSAGE(got.find(want) != std::string::npos, "expected '", want, "', got '", got, "'");
}

}  // namespace bantam::cuda::test
