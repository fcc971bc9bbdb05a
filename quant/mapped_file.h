// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only, and words for files that are not what they should be.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "../kernels/error.h"

namespace bantam {

class MappedFile {
 public:
  /// Error(code) when the file is missing, not a regular file, or cannot be read.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path, ErrorCode code = ErrorCode::model);
  /// The first bytes of an open file, which need not have a name any more; keeps no hold of `fd`. `path` is for
  /// messages.
  static std::shared_ptr<const MappedFile> map(int fd, size_t bytes, const std::filesystem::path& path, ErrorCode code);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  /// Hint that a range is read soon; returns at once. Ranges outside the file are cut.
  void will_need(size_t offset, size_t bytes) const;
  /// "path, size, mtime" as text: part of a fingerprint.
  std::string identity() const;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t mtime_ns_ = 0;
};

/// What a wrong file is, if it is one of the usual mistakes: "a Git LFS pointer, not the file itself"; else empty.
std::string describe_wrong_file(std::span<const std::byte> bytes);

/// 64-bit FNV-1a; for cache keys, not for security.
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0xcbf29ce484222325ull);

}  // namespace bantam
