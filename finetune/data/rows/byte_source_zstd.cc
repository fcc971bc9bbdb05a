// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>
#include <zstd_errors.h>

#include <new>

#include "../../../kernels/error.h"
#include "byte_source.h"

namespace bantam {
namespace {

class Unzstd final : public ByteSource {
 public:
  explicit Unzstd(std::unique_ptr<ByteSource> packed)
      : packed_(std::move(packed)), stream_(ZSTD_createDStream(), &ZSTD_freeDStream), in_(ZSTD_DStreamInSize(), '\0') {
    if (stream_ == nullptr) throw std::bad_alloc();
  }

  size_t read(char* to, size_t n) override {
    if (failed_ != 0) fail();  // the stream cannot be asked again
    ZSTD_outBuffer out{to, n, 0};
    for (;;) {
      if (at_.pos == at_.size && !ended_) refill();
      if (at_.pos == at_.size && ended_ && !in_frame_) return 0;
      const size_t before = at_.pos;
      const size_t rc = ZSTD_decompressStream(stream_.get(), &out, &at_);
      if (ZSTD_isError(rc)) {
        failed_ = rc;
        if (out.pos > 0) return out.pos;
        fail();
      }
      in_frame_ = rc != 0;
      if (!in_frame_) ++frames_;
      if (out.pos > 0) return out.pos;
      if (ended_ && in_frame_ && at_.pos == before) {
        throw Error(ErrorCode::data, "the zstd data ends early: the file is cut short",
                    "fetch or write the file again");
      }
    }
  }

 private:
  void refill() {
    const size_t got = packed_->read(in_.data(), in_.size());
    at_ = {in_.data(), got, 0};
    ended_ = got == 0;
  }

  [[noreturn]] void fail() const {
    const auto code = ZSTD_getErrorCode(failed_);
    if (code == ZSTD_error_memory_allocation) throw std::bad_alloc();
    if (code == ZSTD_error_frameParameter_windowTooLarge) {
      throw Error(ErrorCode::data, "the zstd data needs a window of more than 128 MiB",
                  "unpack it (zstd -d --long=31), or pack it without --long");
    }
    if (code == ZSTD_error_prefix_unknown && frames_ > 0) {
      throw Error(ErrorCode::data, "something that is not zstd data follows the end of the zstd data",
                  "unpack the file by other means, or fetch it again");
    }
    if (code == ZSTD_error_dictionary_wrong) {
      throw Error(ErrorCode::data, "the zstd data was packed with a dictionary",
                  "unpack it with zstd -d -D DICTIONARY");
    }
    throw Error(ErrorCode::data, str("the zstd data is damaged (", ZSTD_getErrorName(failed_), ")"),
                "fetch or write the file again");
  }

  std::unique_ptr<ByteSource> packed_;
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_;
  std::string in_;
  ZSTD_inBuffer at_{nullptr, 0, 0};
  bool ended_ = false, in_frame_ = false;
  size_t frames_ = 0, failed_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> unzstd(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<Unzstd>(std::move(packed));
}

}  // namespace bantam
