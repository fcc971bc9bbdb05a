// SPDX-License-Identifier: Apache-2.0
// A block of a backend's memory, and one of the host memory that it copies to beside its ops.
#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include "backend.h"
#include "error.h"

namespace bantam {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Error(does_not_fit) naming `what` when there is no room.
  DeviceBuffer(const Backend& backend, size_t bytes, const std::string& what)
      : backend_(&backend), data_(backend.allocate(bytes ? bytes : 1)) {
    if (!data_)
      throw Error(ErrorCode::does_not_fit, str(backend.name, ": cannot reserve ", bytes, " bytes for ", what),
                  "bantam plan shows what a run takes");
  }
  ~DeviceBuffer() {
    if (data_) backend_->release(data_);
  }
  DeviceBuffer(DeviceBuffer&& o) noexcept : backend_(o.backend_), data_(o.data_) { o.data_ = nullptr; }
  DeviceBuffer& operator=(DeviceBuffer&& o) noexcept {
    std::swap(backend_, o.backend_);
    std::swap(data_, o.data_);
    return *this;
  }
  void* data() const { return data_; }
  void upload(const void* host, size_t bytes) { backend_->upload(data_, host, bytes); }
  void download(void* host, size_t bytes) const { backend_->download(host, data_, bytes); }

 private:
  const Backend* backend_ = nullptr;
  void* data_ = nullptr;
};

/// Pinned host memory, see Backend::allocate_pinned.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// Error(does_not_fit) naming `what` when there is no room; no memory for 0 bytes.
  PinnedBuffer(const Backend& backend, size_t bytes, const std::string& what) : backend_(&backend), bytes_(bytes) {
    if (bytes == 0) return;
    if (!backend.allocate_pinned)
      throw Error(ErrorCode::device, str(backend.name, ": has no pinned host memory, which ", what, " need"));
    data_ = backend.allocate_pinned(bytes);
    if (!data_)
      throw Error(ErrorCode::does_not_fit,
                  str(backend.name, ": cannot reserve ", bytes, " bytes of pinned host memory for ", what),
                  "free memory of the host, or raise the limit on locked memory (ulimit -l)");
  }
  ~PinnedBuffer() {
    if (data_) backend_->release_pinned(data_);
  }
  PinnedBuffer(PinnedBuffer&& o) noexcept : PinnedBuffer() { *this = std::move(o); }
  PinnedBuffer& operator=(PinnedBuffer&& o) noexcept {
    std::swap(backend_, o.backend_);
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const Backend* backend_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace bantam
