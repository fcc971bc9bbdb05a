// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <new>

#include "../../../kernels/error.h"
#include "byte_source.h"

namespace bantam {
namespace {

constexpr size_t kPacked = size_t{64} << 10;
constexpr int kGzipWindow = 15 + 16;  // zlib's way to say: the largest window, gzip headers only

class Gunzip final : public ByteSource {
 public:
  explicit Gunzip(std::unique_ptr<ByteSource> packed) : packed_(std::move(packed)), in_(kPacked, '\0') {
    if (inflateInit2(&z_, kGzipWindow) != Z_OK) throw std::bad_alloc();
  }
  ~Gunzip() override { inflateEnd(&z_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  size_t read(char* to, size_t n) override {
    const size_t most = std::min<size_t>(n, size_t{1} << 30);
    z_.next_out = reinterpret_cast<Bytef*>(to);
    z_.avail_out = static_cast<uInt>(most);
    while (z_.avail_out == most) {
      if (z_.avail_in == 0 && !ended_) refill();
      if (between_ && !next_member()) return 0;
      const int rc = inflate(&z_, Z_NO_FLUSH);
      if (rc == Z_STREAM_END) {
        inflateReset(&z_);
        between_ = true;
        ++members_;
      } else if (z_.avail_out == most) {  // else the error comes again with the next call
        check(rc);
      }
    }
    return most - z_.avail_out;
  }

 private:
  void refill() {
    const size_t got = packed_->read(in_.data(), in_.size());
    z_.next_in = reinterpret_cast<Bytef*>(in_.data());
    z_.avail_in = static_cast<uInt>(got);
    ended_ = got == 0;
  }

  // Between two members, or before the first: false at the end of the file.
  bool next_member() {
    for (;;) {
      while (members_ > 0 && z_.avail_in > 0 && *z_.next_in == 0) ++z_.next_in, --z_.avail_in;  // padding
      if (z_.avail_in > 0) break;
      if (ended_) return false;
      refill();
    }
    if (members_ > 0 && *z_.next_in != 0x1f) {
      throw Error(ErrorCode::data, "something that is not gzip data follows the end of the gzip data",
                  "unpack the file by other means, or fetch it again");
    }
    between_ = false;
    return true;
  }

  void check(int rc) const {
    if (rc == Z_MEM_ERROR) throw std::bad_alloc();
    if (rc == Z_DATA_ERROR || rc == Z_NEED_DICT) {
      throw Error(ErrorCode::data, str("the gzip data is damaged", z_.msg != nullptr ? str(" (", z_.msg, ")") : ""),
                  "fetch or write the file again");
    }
    if (ended_ && z_.avail_in == 0) {
      throw Error(ErrorCode::data, "the gzip data ends early: the file is cut short", "fetch or write the file again");
    }
  }

  std::unique_ptr<ByteSource> packed_;
  std::string in_;
  z_stream z_{};
  bool ended_ = false, between_ = true;
  size_t members_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> gunzip(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<Gunzip>(std::move(packed));
}

}  // namespace bantam
