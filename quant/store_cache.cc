// SPDX-License-Identifier: Apache-2.0
#include "store_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iomanip>
#include <set>
#include <sstream>

#include "../kernels/error.h"
#include "mapped_file.h"

namespace bantam {

namespace {

namespace fs = std::filesystem;

constexpr int kFormatVersion = 1;  // bumped when the same source and settings would give another store

// Held while an entry is built, so that a second process waits for the first instead of doing the work again. The lock
// goes with the process, however it ends; correctness does not rest on it (some file systems have no locks).
class BuildLock {
 public:
  explicit BuildLock(const fs::path& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (fd_ < 0) return;
    int result;
    do {
      result = ::flock(fd_, LOCK_EX);
    } while (result != 0 && errno == EINTR);
    held_ = result == 0;
  }
  ~BuildLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;
  bool held() const { return held_; }

 private:
  int fd_;
  bool held_ = false;
};

// What builds of this entry left behind that were killed.
void remove_leftovers(const fs::path& entry) {
  const std::string prefix = entry.filename().string() + ".tmp-";
  std::error_code ec;
  std::vector<fs::path> found;
  for (const auto& item : fs::directory_iterator(entry.parent_path(), ec))
    if (item.path().filename().string().starts_with(prefix)) found.push_back(item.path());
  for (const auto& path : found) fs::remove_all(path, ec);
}

// Whether the store has exactly the tensors of the source.
bool matches(const WeightStore& store, const TensorSource& source) {
  const auto names = store.names();
  std::set<std::string> wanted;
  for (const auto& t : source.tensors()) wanted.insert(t.name);
  return wanted == std::set<std::string>(names.begin(), names.end());
}

std::shared_ptr<const WeightStore> try_open(const fs::path& entry, const TensorSource& source) {
  std::error_code ec;
  if (!fs::exists(entry / "model.safetensors", ec)) return nullptr;
  try {
    auto store = WeightStore::open(entry);
    return matches(*store, source) ? store : nullptr;
  } catch (const Error&) {
    return nullptr;  // built anew below
  }
}

}  // namespace

std::string store_cache_key(const TensorSource& source, const QuantConfig& quant) {
  const std::string text = str("bantam store ", kFormatVersion, "\n", source.fingerprint(),
                               "\ntype=", static_cast<int>(quant.type), " double=", quant.double_quant, "\n");
  const auto bytes = std::as_bytes(std::span<const char>(text));
  std::ostringstream out;
  out << std::hex << std::setfill('0') << std::setw(16) << hash_bytes(bytes) << std::setw(16)
      << hash_bytes(bytes, 0x9e3779b97f4a7c15ull);
  return out.str();
}

bool store_is_cached(const TensorSource& source, const QuantConfig& quant, const fs::path& cache_dir) {
  std::error_code ec;
  return fs::exists(cache_dir / store_cache_key(source, quant) / "model.safetensors", ec);
}

std::shared_ptr<const WeightStore> cached_store(const TensorSource& source, const QuantConfig& quant,
                                                const fs::path& cache_dir,
                                                const std::function<void(const StoreProgress&)>& progress, int threads,
                                                Context* device) {
  const fs::path entry = cache_dir / store_cache_key(source, quant);
  if (auto store = try_open(entry, source)) return store;
  std::error_code ec;
  fs::create_directories(cache_dir, ec);
  if (ec) throw Error(ErrorCode::io, str(cache_dir.string(), ": cannot be created: ", ec.message()));
  const BuildLock lock(fs::path(entry.string() + ".lock"));
  if (auto store = try_open(entry, source)) return store;  // the other process was faster
  if (lock.held()) remove_leftovers(entry);

  static std::atomic<unsigned> counter{0};
  const fs::path building = entry.string() + str(".tmp-", ::getpid(), "-", counter++);
  struct Cleanup {
    const fs::path& path;
    ~Cleanup() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } cleanup{building};
  StoreOptions options;
  options.threads = threads;
  options.device = device;
  options.progress = progress;
  write_store(source, quant, building, options);
  // A folder can replace an empty one only: a broken entry steps aside first.
  fs::rename(building, entry, ec);
  if (ec) {
    const fs::path broken = building.string() + "-old";
    fs::rename(entry, broken, ec);
    fs::rename(building, entry, ec);
    std::error_code ignored;
    fs::remove_all(broken, ignored);
  }
  if (auto store = try_open(entry, source)) return store;
  throw Error(ErrorCode::io,
              str(entry.string(), ": the store cannot be put in place", ec ? ": " + ec.message() : std::string()),
              "give another cache folder");
}

}  // namespace bantam
