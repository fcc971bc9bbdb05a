// SPDX-License-Identifier: Apache-2.0
// A fixed set of worker threads that belongs to one Context: no global settings, nothing shared between trainers.
// (Not OpenMP: libgomp's barriers spin against other load, and ThreadSanitizer cannot see through them.)
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace bantam {

class ThreadPool {
 public:
  /// `threads` >= 1 counts the calling thread: 1 starts no worker.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  int size() const;
  /// Runs f(thread) once on each of size() threads (thread 0 is the caller) and returns when all are done.
  /// The first exception is rethrown. Not reentrant; one caller at a time.
  void run(const std::function<void(int thread)>& f);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
