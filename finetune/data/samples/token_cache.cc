// SPDX-License-Identifier: Apache-2.0
#include "token_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "../../../kernels/error.h"
#include "../../../kernels/hash.h"
#include "sample_storage.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".samples", kTemporary = ".samples.tmp-";
constexpr auto kLeftBehind = std::chrono::hours(24);

// Not the process id: a cache may be shared by machines.
std::string random_name() {
  std::random_device random;
  return hex64(uint64_t{random()} << 32 | random());
}

// A running writer appends all the time, so its file is young.
void remove_leftovers(const fs::path& folder) {
  std::error_code ec;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator i(folder, ec), end; !ec && i != end; i.increment(ec)) {
    if (i->path().filename().string().find(kTemporary) == std::string::npos) continue;
    std::error_code gone;
    const auto time = fs::last_write_time(i->path(), gone);
    if (!gone && now - time > kLeftBehind) fs::remove(i->path(), gone);
  }
}

}  // namespace

CacheKey::CacheKey() {
  add("sample file format", kSampleFileVersion);
}

CacheKey& CacheKey::add(std::string_view name, std::string_view bytes) {
  for (const std::string_view part : {name, bytes}) {
    const uint64_t n = part.size();
    hash_.add(&n, sizeof n).add(part.data(), part.size());
  }
  return *this;
}

CacheKey& CacheKey::add_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Error(ErrorCode::io, str(path.string(), ": cannot be opened: ", std::strerror(errno)));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
    throw Error(ErrorCode::io, str(path.string(), ": not a regular file"));
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  Xxh3 content;
  std::vector<char> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorCode::io, str(path.string(), ": cannot be read: ", std::strerror(errno)));
    if (n == 0) break;
    content.add(buffer.data(), static_cast<size_t>(n));
  }
  return add("file", content.digest128());
}

std::string CacheKey::text() const {
  return hash_.digest128();
}

fs::path TokenCache::entry(const std::string& key) const {
  return folder_ / (key + std::string(kEnding));
}

std::optional<SampleSet> TokenCache::find(const std::string& key, std::string* damage) const {
  const fs::path path = entry(key);
  std::error_code ec;
  if (!fs::exists(path, ec)) return std::nullopt;
  try {
    SampleSet set = SampleSet::open(path);
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // a read-only cache has no order of use
    return set;
  } catch (const Error& e) {
    if (damage && fs::exists(path, ec)) *damage = e.what();  // else trimmed just now
    return std::nullopt;
  }
}

TokenCacheWriter TokenCache::writer(const std::string& key) const {
  const fs::path path = entry(key);
  std::error_code ec;
  fs::create_directories(folder_, ec);
  if (ec) return {SampleWriter::temporary(), {}, path, str(folder_.string(), ": cannot be created: ", ec.message())};
  remove_leftovers(folder_);
  const fs::path temporary = folder_ / (key + std::string(kTemporary) + random_name());
  try {
    return {SampleWriter(temporary, SampleWriter::WhenFull::go_on), temporary, path, {}};
  } catch (const Error& e) {
    return {SampleWriter::temporary(), {}, path, e.what()};
  }
}

SampleSet TokenCacheWriter::commit(std::string_view metadata) {
  SampleSet set = writer_.finish(metadata);
  if (temporary_.empty()) return set;
  if (!writer_.in_file()) {
    why_ = writer_.why_not_in_file();
  } else if (::rename(temporary_.c_str(), entry_.c_str()) != 0) {
    why_ = str(entry_.string(), ": cannot be put in place: ", std::strerror(errno));
    ::unlink(temporary_.c_str());
  }
  return set;
}

uint64_t TokenCache::trim(uint64_t max_bytes) const {
  struct Entry {
    fs::file_time_type used;
    fs::path path;
    uint64_t bytes;
  };
  std::vector<Entry> entries;
  uint64_t total = 0, freed = 0;
  std::error_code ec;
  for (fs::directory_iterator i(folder_, ec), end; !ec && i != end; i.increment(ec)) {
    if (i->path().extension() != kEnding) continue;
    std::error_code gone;
    const auto used = fs::last_write_time(i->path(), gone);
    const uint64_t bytes = gone ? 0 : fs::file_size(i->path(), gone);
    if (gone) continue;
    entries.push_back({used, i->path(), bytes});
    total += bytes;
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used != b.used ? a.used < b.used : a.path < b.path; });
  for (const Entry& e : entries) {
    if (total <= max_bytes) break;
    std::error_code failed;
    if (fs::remove(e.path, failed) && !failed) freed += e.bytes;
    total -= e.bytes;
  }
  return freed;
}

}  // namespace bantam
