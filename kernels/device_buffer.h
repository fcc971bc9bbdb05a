// SPDX-License-Identifier: Apache-2.0
// A block of a backend's memory.
#pragma once
#include <cstddef>
#include <string>

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

}  // namespace bantam
