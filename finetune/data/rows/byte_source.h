// SPDX-License-Identifier: Apache-2.0
// Bytes of a file as a stream, and what unpacks them: gzip, zstd. Nothing is held but one buffer's worth.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace bantam {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills the front of to[0..n), n > 0, with at least one byte and returns how many; 0 only at the end. Error(data)
  /// for a damaged archive, Error(io) where the disk fails; neither names the file, which the caller knows. What stands
  /// before the damage is given first.
  virtual size_t read(char* to, size_t n) = 0;
};

/// A file, or anything else that can be read from its start to its end. Error(data) when it cannot be opened.
std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path);

/// Gives the first bytes of a source without taking them.
class HeadSource final : public ByteSource {
 public:
  static constexpr size_t kHead = 512;
  explicit HeadSource(std::unique_ptr<ByteSource> source);
  /// At most kHead, less only of a shorter file.
  std::string_view head() const { return head_; }
  size_t read(char* to, size_t n) override;

 private:
  std::unique_ptr<ByteSource> source_;
  std::string head_;
  size_t given_ = 0;
};

inline bool is_gzip(std::string_view head) {
  return head.starts_with("\x1f\x8b");
}
/// A frame's magic number, or that of a frame to skip, which some writers put first.
inline bool is_zstd(std::string_view head) {
  return head.starts_with("\x28\xb5\x2f\xfd") ||
         (head.size() >= 4 && (head[0] & 0xF0) == 0x50 && head.substr(1).starts_with("\x2a\x4d\x18"));
}

/// Members one after the other are one text; zeros may follow the last, anything else is an error.
std::unique_ptr<ByteSource> gunzip(std::unique_ptr<ByteSource> packed);
/// Frames one after the other are one text. Windows are limited to 128 MiB, zstd's own default.
std::unique_ptr<ByteSource> unzstd(std::unique_ptr<ByteSource> packed);

}  // namespace bantam
