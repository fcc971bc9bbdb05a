// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <optional>

#include "../../../kernels/error.h"
#include "sample_storage.h"
#include "xxh3.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;
using Storage = SampleSet::Storage;

constexpr size_t kBuffer = size_t{4} << 20, kFirstChunk = size_t{4} << 10;

Error write_error(const fs::path& name, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Error(ErrorCode::io, str(name.string(), ": cannot be written: ", std::strerror(error)),
               full ? "free some space on this disk" : "");
}

// A file that is being written.
class OutFile {
 public:
  OutFile(int fd, fs::path name, bool named) : name_(std::move(name)), fd_(fd), named_(named) {}
  OutFile(OutFile&& o) noexcept
      : name_(std::move(o.name_)), bytes_(o.bytes_), fd_(std::exchange(o.fd_, -1)), named_(o.named_) {}
  OutFile& operator=(OutFile&&) = delete;
  ~OutFile() {
    if (fd_ >= 0) ::close(fd_);
    if (fd_ >= 0 && named_) ::unlink(name_.c_str());
  }

  // A new inode, so that nobody's mapping of an older file of that name changes.
  static OutFile create(const fs::path& path) {
    ::unlink(path.c_str());
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
      const int error = errno;
      throw Error(ErrorCode::io, str(path.string(), ": cannot be created: ", std::strerror(error)));
    }
    return OutFile(fd, path, true);
  }
  // None when there is no place for it, or when that is on the device `other_than`.
  static std::optional<OutFile> without_name(std::optional<dev_t> other_than) {
    std::error_code ec;
    const fs::path folder = fs::temp_directory_path(ec);
    if (ec) return std::nullopt;
    std::string name = (folder / "bantam-samples-XXXXXX").string();
    const int fd = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0) return std::nullopt;
    ::unlink(name.c_str());
    OutFile file(fd, name, false);
    if (other_than && file.device() == other_than) return std::nullopt;
    return file;
  }

  // errno, or 0. After an error the bytes before `bytes()` are still there.
  int append(const void* data, size_t n) {
    if (bytes_ + n >= Storage::kSegmentBytes) return EFBIG;
    const int error = write_at(bytes_, data, n);
    if (error == 0) bytes_ += n;
    return error;
  }
  int write_at(uint64_t at, const void* data, size_t n) {
    auto p = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t done = ::pwrite(fd_, p, n, static_cast<off_t>(at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return done < 0 ? errno : ENOSPC;
      p += done;
      at += static_cast<uint64_t>(done);
      n -= static_cast<size_t>(done);
    }
    return 0;
  }
  std::shared_ptr<const MappedFile> map() const { return MappedFile::map(fd_, bytes_, name_, ErrorCode::io); }
  // Closes, and leaves the file where it is. errno, or 0: some file systems report a full disk only now.
  int close() { return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno; }
  const fs::path& name() const { return name_; }
  uint64_t bytes() const { return bytes_; }
  void forget_after(uint64_t bytes) { bytes_ = bytes; }
  bool named() const { return named_; }
  std::optional<dev_t> device() const {
    struct stat st {};
    return ::fstat(fd_, &st) == 0 ? std::optional<dev_t>(st.st_dev) : std::nullopt;
  }

 private:
  fs::path name_;
  uint64_t bytes_ = 0;
  int fd_;
  bool named_;
};

void check(const SampleView& s) {
  if (s.trained.size() != s.ids.size() || (!s.weights.empty() && s.weights.size() != s.ids.size()) ||
      s.ids.size() > kMostTokens)
    throw Error(ErrorCode::internal,
                str("sample ", s.id, " has ", s.ids.size(), " ids, ", s.trained.size(), " marks and ", s.weights.size(),
                    " weights, expected as many of each or no weights, at most ", kMostTokens));
  for (size_t i = 0; i < s.weights.size(); ++i)
    if (s.trained[i] != 0 && !(std::isfinite(s.weights[i]) && s.weights[i] > 0))
      throw Error(ErrorCode::internal, str("sample ", s.id, ": token ", i, " is trained with weight ", s.weights[i]));
}

}  // namespace

struct SampleWriter::Impl {
  std::shared_ptr<Storage> set = std::make_shared<Storage>();
  std::optional<OutFile> file;    // none: records go into chunks
  std::vector<std::byte> buffer;  // the file's next bytes
  size_t buffered = 0;            // the last samples, whose records are in the buffer
  size_t chunk_bytes = 0, chunk_used = 0;
  bool single = false;  // one file with an index is being made; else offsets are kept in memory
  bool keep_named = false;
  WhenFull when_full = WhenFull::raise;
  std::string why;
  Xxh3 hash;

  void open(OutFile f) {
    file.emplace(std::move(f));
    keep_named = file->named();
    single = true;
    buffer.reserve(kBuffer);
    const SampleFileHeader empty{};  // overwritten at the end: until then it is no file of samples
    if (const int error = file->append(&empty, sizeof empty)) full(error);
  }

  // Where the next record goes. In a chunk it never moves again.
  std::byte* place(size_t n) {
    if (file && buffer.size() + n > kBuffer) flush();
    if (file) {
      if (!single) set->own_offsets.push_back(file_offset(file->bytes() + buffer.size()));
      buffer.resize(buffer.size() + n);
      ++buffered;
      return buffer.data() + buffer.size() - n;
    }
    if (set->chunks.empty() || n > chunk_bytes - chunk_used) {
      chunk_bytes = std::max(n, std::min(kBuffer, std::max(kFirstChunk, 2 * chunk_bytes)));
      set->chunks.push_back(std::make_unique_for_overwrite<std::byte[]>(chunk_bytes));
      set->segments.push_back(set->chunks.back().get());
      chunk_used = 0;
    }
    set->own_offsets.push_back((set->segments.size() - 1) << Storage::kSegmentBits | chunk_used);
    chunk_used += n;
    return set->chunks.back().get() + chunk_used - n;
  }

  // A file that is being written becomes the next segment when it is complete.
  uint64_t file_offset(uint64_t at) const { return set->segments.size() << Storage::kSegmentBits | at; }

  void flush() {
    if (const int error = file->append(buffer.data(), buffer.size())) return full(error);
    buffer.clear();
    buffered = 0;
  }

  // What is in the file stays in use, without a name; the buffer moves to the next place.
  void full(int error) {
    const Error e = write_error(file->name(), error);
    if (when_full == WhenFull::raise) throw e;
    if (why.empty()) why = e.what();
    const auto device = file->device();
    const bool first = single;
    list_offsets();
    seal();
    if (first) {
      if (auto next = OutFile::without_name(device)) file.emplace(std::move(*next));
    }
    std::vector<std::byte> moving = std::move(buffer);
    buffer.clear();
    const size_t from = set->own_lengths.size() - buffered, count = buffered;
    set->own_offsets.resize(from);
    buffered = 0;
    if (file) buffer.reserve(kBuffer);
    const std::byte* p = moving.data();
    for (size_t i = from; i < from + count; ++i) {
      const size_t n = record_bytes(set->own_lengths[i]);
      std::memcpy(place(n), p, n);
      p += n;
    }
  }

  // Offsets of the one file, as its index would have them.
  void list_offsets() {
    if (!single) return;
    single = false;
    uint64_t at = sizeof(SampleFileHeader);
    for (const uint32_t n : set->own_lengths) {
      set->own_offsets.push_back(at);
      at += record_bytes(n);
    }
  }

  void seal() {
    set->mappings.push_back(file->map());
    set->segments.push_back(set->mappings.back()->bytes().data());
    file.reset();
  }

  // errno, or 0.
  int write_index(std::string_view metadata) {
    SampleFileHeader h{};
    std::memcpy(h.magic, kSampleFileMagic, sizeof h.magic);
    h.version = kSampleFileVersion;
    h.header_bytes = sizeof h;
    h.samples = set->own_ids.size();
    h.tokens = static_cast<uint64_t>(set->tokens);
    h.records_bytes = file->bytes() - sizeof h;
    h.metadata_bytes = metadata.size();
    h.records_hash = hash.digest();
    h.content_hash = set->hash;
    h.smallest_token = set->smallest;
    h.largest_token = set->largest;
    Xxh3 index;
    int error = 0;
    const auto put = [&](const void* data, size_t n) {
      if (error != 0) return;
      index.add(data, n);
      error = file->append(data, n);
    };
    put(set->own_ids.data(), set->own_ids.size() * sizeof(uint64_t));
    std::vector<uint64_t> offsets;
    uint64_t at = sizeof h;
    for (size_t i = 0; i < set->own_lengths.size(); ++i) {
      offsets.push_back(at);
      at += record_bytes(set->own_lengths[i]);
      if (offsets.size() == kBuffer / sizeof(uint64_t) || i + 1 == set->own_lengths.size()) {
        put(offsets.data(), offsets.size() * sizeof(uint64_t));
        offsets.clear();
      }
    }
    put(set->own_lengths.data(), set->own_lengths.size() * sizeof(uint32_t));
    const uint32_t zero = 0;
    if (set->own_lengths.size() % 2 != 0) put(&zero, sizeof zero);
    put(metadata.data(), metadata.size());
    h.index_hash = index.digest();
    h.file_bytes = file->bytes();
    h.header_hash = Xxh3::of(&h, offsetof(SampleFileHeader, header_hash));
    return error != 0 ? error : file->write_at(0, &h, sizeof h);
  }

  // The finished file, mapped; null when it could not be written and the set goes on without it.
  std::shared_ptr<const Storage> finish_file(std::string_view metadata) {
    const uint64_t records = file->bytes();
    int error = write_index(metadata);
    if (error == 0) {
      auto mapping = file->map();
      if (const int late = file->close(); late == 0) {
        file.reset();
        return read_sample_file(std::move(mapping), false);
      } else {
        error = late;
        if (keep_named) ::unlink(file->name().c_str());
      }
      if (when_full == WhenFull::raise) throw write_error(file->name(), error);
      why = write_error(file->name(), error).what();
      list_offsets();
      set->segments.push_back(mapping->bytes().data());
      set->mappings.push_back(std::move(mapping));
      file.reset();
      return nullptr;
    }
    file->forget_after(records);
    full(error);
    return nullptr;
  }
};

SampleWriter::SampleWriter() : impl_(std::make_unique<Impl>()) {}

SampleWriter::SampleWriter(const fs::path& path, WhenFull when_full) : SampleWriter() {
  impl_->when_full = when_full;
  impl_->open(OutFile::create(path));
}

SampleWriter SampleWriter::temporary() {
  SampleWriter out;
  out.impl_->when_full = WhenFull::go_on;
  if (auto file = OutFile::without_name(std::nullopt)) out.impl_->open(std::move(*file));
  return out;
}

SampleWriter::~SampleWriter() = default;
SampleWriter::SampleWriter(SampleWriter&&) noexcept = default;
SampleWriter& SampleWriter::operator=(SampleWriter&&) noexcept = default;

void SampleWriter::add(const SampleView& s) {
  check(s);
  Storage& set = *impl_->set;
  const auto length = static_cast<uint32_t>(s.ids.size()) | (s.weights.empty() ? 0 : kHasWeights);
  const size_t bytes = record_bytes(length);
  std::byte* const record = impl_->place(bytes);
  std::byte* p = record;
  const auto put = [&p](const auto& list) {
    if (!list.empty()) std::memcpy(p, list.data(), list.size_bytes());
    p += list.size_bytes();
  };
  put(s.ids), put(s.weights), put(s.trained);
  std::fill(p, record + bytes, std::byte{0});
  impl_->hash.add(record, bytes);
  if (!s.ids.empty()) {
    const auto [least, most] = std::ranges::minmax(s.ids);
    const bool first = set.largest < set.smallest;
    set.smallest = first ? least : std::min(set.smallest, least);
    set.largest = first ? most : std::max(set.largest, most);
  }
  set.own_ids.push_back(s.id);
  set.own_lengths.push_back(length);
  set.tokens += static_cast<int64_t>(s.ids.size());
}

size_t SampleWriter::size() const {
  return impl_->set->own_ids.size();
}

int64_t SampleWriter::tokens() const {
  return impl_->set->tokens;
}

SampleSet SampleWriter::finish(std::string_view metadata) {
  Impl& w = *impl_;
  Storage& set = *w.set;
  set.hash = content_hash(w.hash.digest(), set.own_ids, set.own_lengths);
  if (w.file) w.flush();
  if (w.file && w.single) {
    if (auto storage = w.finish_file(metadata)) return SampleSet(std::move(storage));
  }
  // Nothing is buffered here but what moved on from a full disk.
  if (w.file && !w.buffer.empty()) w.flush();
  if (w.file) w.seal();
  set.own_metadata = metadata;
  set.metadata = set.own_metadata;
  set.ids = set.own_ids;
  set.offsets = set.own_offsets;
  set.lengths = set.own_lengths;
  return SampleSet(std::move(w.set));
}

bool SampleWriter::in_file() const {
  return impl_->keep_named && impl_->why.empty();
}

const std::string& SampleWriter::why_not_in_file() const {
  return impl_->why;
}

}  // namespace bantam
