// SPDX-License-Identifier: Apache-2.0
// What a process holds of one kind of memory.
#pragma once
#include <algorithm>
#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace bantam::cuda {

class Ledger {
 public:
  struct Use {
    size_t now = 0, most = 0;
  };
  void add(void* p, size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[p] = bytes;
    use_.now += bytes;
    use_.most = std::max(use_.most, use_.now);
  }
  void remove(void* p) {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(p);
    if (it == blocks_.end()) return;
    use_.now -= it->second;
    blocks_.erase(it);
  }
  /// Bytes of a block; 0: unknown.
  size_t bytes(void* p) {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(p);
    return it == blocks_.end() ? 0 : it->second;
  }
  Use use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, size_t> blocks_;
  Use use_;
};

}  // namespace bantam::cuda
