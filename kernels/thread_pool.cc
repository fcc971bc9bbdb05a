// SPDX-License-Identifier: Apache-2.0
#include "thread_pool.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bantam {

struct ThreadPool::Impl {
  int threads;
  std::vector<std::thread> workers;
  std::atomic<uint32_t> generation{0};  // bumped for each run; workers wait for it to change
  std::atomic<int> pending{0};
  std::atomic<bool> stop{false};
  const std::function<void(int)>* job = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;

  void call(int thread) {
    try {
      (*job)(thread);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }
  // Ops follow each other closely, and waking a sleeper takes longer than many of them: spin for about 0.1 ms, then sleep
  // so that other load may run. With more threads than cores a spinner would only be in the way.
  int spins = 0;
  template <class T>
  void wait_while_equal(std::atomic<T>& a, T old) const {
    for (int i = 0; i < spins; ++i) {
      if (a.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    a.wait(old, std::memory_order_acquire);
  }
  void worker(int thread) {
    uint32_t seen = 0;
    while (true) {
      wait_while_equal(generation, seen);
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      call(thread);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  impl_->threads = threads < 1 ? 1 : threads;
  impl_->spins = impl_->threads <= static_cast<int>(std::thread::hardware_concurrency()) ? 6000 : 50;
  for (int t = 1; t < impl_->threads; ++t) impl_->workers.emplace_back([this, t] { impl_->worker(t); });
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->generation.fetch_add(1, std::memory_order_acq_rel);
  impl_->generation.notify_all();
  for (auto& w : impl_->workers) w.join();
}

int ThreadPool::size() const {
  return impl_->threads;
}

void ThreadPool::run(const std::function<void(int)>& f) {
  Impl& p = *impl_;
  p.job = &f;
  if (p.threads > 1) {
    p.pending.store(p.threads - 1, std::memory_order_release);
    p.generation.fetch_add(1, std::memory_order_acq_rel);
    p.generation.notify_all();
  }
  p.call(0);
  for (int left = p.pending.load(std::memory_order_acquire); left > 0; left = p.pending.load(std::memory_order_acquire))
    p.wait_while_equal(p.pending, left);
  if (p.error) std::rethrow_exception(std::exchange(p.error, nullptr));
}

}  // namespace bantam
