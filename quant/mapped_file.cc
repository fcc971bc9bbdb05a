// SPDX-License-Identifier: Apache-2.0
#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "../kernels/hash.h"

namespace bantam {

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path, ErrorCode code) {
  // Non-blocking, so that a named pipe in the place of a file is an error and not a wait.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Error(code, str(path.string(), ": cannot be opened: ", std::strerror(errno)));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) throw Error(code, str(path.string(), ": not a regular file"));
  return map(fd, static_cast<size_t>(st.st_size), path, code);
}

std::shared_ptr<const MappedFile> MappedFile::map(int fd, size_t bytes, const std::filesystem::path& path,
                                                  ErrorCode code) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  struct stat st {};
  if (::fstat(fd, &st) == 0)
    file->mtime_ns_ = static_cast<int64_t>(st.st_mtim.tv_sec) * 1000000000 + st.st_mtim.tv_nsec;
  if (bytes == 0) return file;
  void* p = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) throw Error(code, str(path.string(), ": cannot be mapped: ", std::strerror(errno)));
  file->data_ = static_cast<const std::byte*>(p);
  file->size_ = bytes;
  return file;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::will_need(size_t offset, size_t bytes) const {
  if (offset >= size_ || bytes == 0) return;
  bytes = std::min(bytes, size_ - offset);
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  ::madvise(const_cast<std::byte*>(data_ + begin), offset + bytes - begin, MADV_WILLNEED);
}

std::string MappedFile::identity() const {
  std::error_code ec;
  const auto full = std::filesystem::weakly_canonical(path_, ec);
  return str(ec ? path_.string() : full.string(), " size=", size_, " mtime=", mtime_ns_);
}

std::string describe_wrong_file(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "an empty file";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 512));
  if (text.starts_with("version https://git-lfs")) return "a Git LFS pointer, not the file itself";
  const size_t at = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (at != std::string_view::npos && text[at] == '<') {
    std::string head(text.substr(at, 16));
    for (char& c : head) c = (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
    if (head.starts_with("<!doctype") || head.starts_with("<html") || head.starts_with("<?xml") ||
        head.starts_with("<head"))
      return "an HTML or XML page, not the file itself (a failed download)";
  }
  if (text.starts_with("PK\x03\x04")) return "a zip archive (a PyTorch pickle checkpoint?)";
  if (text.starts_with("\x1f\x8b")) return "a gzip archive";
  return {};
}

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  return fnv1a(bytes.data(), bytes.size(), seed);
}

}  // namespace bantam
