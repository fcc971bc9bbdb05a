// SPDX-License-Identifier: Apache-2.0
#include "byte_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "../../../kernels/error.h"

namespace bantam {
namespace {

class FileSource final : public ByteSource {
 public:
  explicit FileSource(int fd) : fd_(fd) {}
  ~FileSource() override { ::close(fd_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  size_t read(char* to, size_t n) override {
    for (;;) {
      const ssize_t got = ::read(fd_, to, n);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) throw Error(ErrorCode::io, str("read error: ", std::strerror(errno)));
    }
  }

 private:
  int fd_;
};

}  // namespace

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path) {
  std::error_code ec;
  const auto status = std::filesystem::status(path, ec);
  if (!std::filesystem::exists(status)) {
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, ec))) {
      throw Error(ErrorCode::data, str(path.string(), ": a link to ", std::filesystem::read_symlink(path, ec).string(),
                                       ", which does not exist"));
    }
    throw Error(ErrorCode::data, str(path.string(), ": no such file"),
                "check the path; relative paths start at the current directory");
  }
  if (std::filesystem::is_directory(status)) {
    throw Error(ErrorCode::data, str(path.string(), ": is a folder, expected a file"), "name the file inside it");
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error(ErrorCode::data, str(path.string(), ": cannot be opened: ", std::strerror(errno)));
  return std::make_unique<FileSource>(fd);
}

HeadSource::HeadSource(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {
  head_.resize(kHead);
  size_t have = 0;
  while (have < kHead) {
    const size_t got = source_->read(head_.data() + have, kHead - have);
    if (got == 0) break;
    have += got;
  }
  head_.resize(have);
}

size_t HeadSource::read(char* to, size_t n) {
  if (given_ == head_.size()) return source_->read(to, n);
  n = std::min(n, head_.size() - given_);
  std::memcpy(to, head_.data() + given_, n);
  given_ += n;
  return n;
}

}  // namespace bantam
