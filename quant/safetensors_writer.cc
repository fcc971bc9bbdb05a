// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "../kernels/error.h"
#include "safetensors.h"

namespace bantam {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void io_error(const fs::path& path, const char* what) {
  const int e = errno;
  throw Error(ErrorCode::io, str(path.string(), ": ", what, ": ", std::strerror(e)),
              e == ENOSPC || e == EDQUOT ? "free some space on this disk" : "");
}

// Unique within the machine, so that two processes may write the same target.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<unsigned> counter{0};
  fs::path p = path;
  p += str(".tmp-", ::getpid(), "-", counter++);
  return p;
}

int create(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) io_error(path, "cannot be created");
  return fd;
}

void write_at(int fd, const fs::path& path, uint64_t at, const std::byte* p, size_t n) {
  while (n > 0) {
    const ssize_t done = ::pwrite(fd, p, n, static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) io_error(path, "cannot be written");
    p += done;
    at += static_cast<uint64_t>(done);
    n -= static_cast<size_t>(done);
  }
}

// Closes, and renames over the target; the folder is synced too, so that the new name survives a power cut.
void commit(int fd, const fs::path& temporary, const fs::path& path) {
  const bool synced = ::fsync(fd) == 0;
  const int error = errno;
  if (::close(fd) != 0 || !synced) {
    if (!synced) errno = error;
    io_error(temporary, "cannot be written to disk");
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) io_error(path, "cannot be replaced");
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (const int d = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); d >= 0) {
    ::fsync(d);
    ::close(d);
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<Tensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), temporary_(temporary_name(path)), tensors_(std::move(tensors)), slots_(tensors_.size()) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    uint64_t bytes = safetensors_dtype_size(tensors_[i].dtype);
    if (bytes == 0)
      throw Error(ErrorCode::internal, str("safetensors writer: unknown dtype '", tensors_[i].dtype, "'"));
    for (const int64_t d : tensors_[i].shape)
      if (d < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes))
        throw Error(ErrorCode::internal, str("safetensors writer: bad shape of '", tensors_[i].name, "'"));
    slots_[i].bytes = bytes;
  }
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](size_t i) {
    return std::make_tuple(slots_[i].bytes % 64 != 0, -static_cast<int>(safetensors_dtype_size(tensors_[i].dtype)));
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const size_t i : order) {
    if (header.contains(tensors_[i].name) || tensors_[i].name == "__metadata__")
      throw Error(ErrorCode::internal, str("safetensors writer: the name '", tensors_[i].name, "' is taken"));
    header[tensors_[i].name] = {
        {"dtype", tensors_[i].dtype}, {"shape", tensors_[i].shape}, {"data_offsets", {at, at + slots_[i].bytes}}};
    slots_[i].offset = at;
    at += slots_[i].bytes;
  }
  std::string text = header.dump();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  std::string head(8, '\0');
  for (int i = 0; i < 8; ++i) head[i] = static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  head += text;
  for (auto& s : slots_) s.offset += head.size();
  fd_ = create(temporary_);
  try {
    write_at(fd_, temporary_, 0, reinterpret_cast<const std::byte*>(head.data()), head.size());
    if (::ftruncate(fd_, static_cast<off_t>(head.size() + at)) != 0) io_error(temporary_, "cannot be extended");
  } catch (...) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void SafetensorsWriter::write(size_t i, uint64_t at, std::span<const std::byte> bytes) {
  if (i >= slots_.size() || at > slots_[i].bytes || bytes.size() > slots_[i].bytes - at)
    throw Error(ErrorCode::internal, "safetensors writer: a write outside the tensor");
  write_at(fd_, temporary_, slots_[i].offset + at, bytes.data(), bytes.size());
  slots_[i].written += bytes.size();
}

void SafetensorsWriter::finish() {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].written != slots_[i].bytes)
      throw Error(ErrorCode::internal, str("safetensors writer: tensor '", tensors_[i].name, "' has ",
                                           slots_[i].written, " of ", slots_[i].bytes, " bytes"));
  const int fd = std::exchange(fd_, -1);
  try {
    commit(fd, temporary_, path_);
  } catch (...) {
    ::unlink(temporary_.c_str());
    throw;
  }
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const fs::path temporary = temporary_name(path);
  const int fd = create(temporary);
  bool open = true;
  try {
    write_at(fd, temporary, 0, reinterpret_cast<const std::byte*>(content.data()), content.size());
    open = false;
    commit(fd, temporary, path);
  } catch (...) {
    if (open) ::close(fd);
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace bantam
