// SPDX-License-Identifier: Apache-2.0
#include "quant/store_cache.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <thread>

#include "store_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

// Counts the rows that are read, to see whether anything was quantised.
class CountingSource : public TensorSource {
 public:
  explicit CountingSource(std::map<std::string, MemoryTensor> t) : inner_(memory_source(std::move(t))) {}
  const std::vector<SourceTensor>& tensors() const override { return inner_->tensors(); }
  void read_rows(size_t i, int64_t r0, int64_t n, float* out) const override {
    reads += n;
    inner_->read_rows(i, r0, n, out);
  }
  std::string fingerprint() const override { return inner_->fingerprint(); }
  mutable std::atomic<int64_t> reads{0};

 private:
  std::unique_ptr<TensorSource> inner_;
};

std::vector<std::string> folders(const std::filesystem::path& dir) {
  std::vector<std::string> out;
  for (const auto& e : std::filesystem::directory_iterator(dir))
    if (e.is_directory()) out.push_back(e.path().filename().string());
  return out;
}

}  // namespace

TEST_CASE("the second time nothing is read from the source") {
  TempDir dir;
  const CountingSource source(tiny_llama());
  const auto first = cached_store(source, {}, dir / "cache");
  CHECK(first->mapped());
  CHECK(source.reads > 0);
  source.reads = 0;
  const auto second = cached_store(source, {}, dir / "cache");
  CHECK(source.reads == 0);
  CHECK(second->names() == first->names());
  CHECK(folders(dir / "cache") == std::vector<std::string>{store_cache_key(source, {})});
}

TEST_CASE("the key depends on the content and on the quantisation") {
  const auto a = memory_source(tiny_llama());
  auto changed = tiny_llama();
  changed["model.norm.weight"].values[0] += 1.0f;
  const auto b = memory_source(std::move(changed));
  CHECK(store_cache_key(*a, {}) == store_cache_key(*memory_source(tiny_llama()), {}));
  CHECK(store_cache_key(*a, {}) != store_cache_key(*b, {}));
  CHECK(store_cache_key(*a, {QuantType::nf4, true}) != store_cache_key(*a, {QuantType::nf4, false}));
  CHECK(store_cache_key(*a, {QuantType::nf4, true}) != store_cache_key(*a, {QuantType::none, true}));

  // Files: touching one changes its fingerprint.
  TempDir dir;
  write_store(*a, {QuantType::none, false}, dir / "m");
  const std::string before = store_cache_key(*open_model_files(dir / "m"), {});
  CHECK(before == store_cache_key(*open_model_files(dir / "m"), {}));
  const auto file = dir / "m" / "model.safetensors";
  std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) + std::chrono::seconds(5));
  CHECK(before != store_cache_key(*open_model_files(dir / "m"), {}));
}

TEST_CASE("a broken entry is built anew") {
  TempDir dir;
  const CountingSource source(tiny_llama());
  const auto entry = dir.path() / store_cache_key(source, {});
  const auto names = cached_store(source, {}, dir.path())->names();
  const std::string good = read_file(entry / "model.safetensors");
  const auto other = memory_source({{"model.norm.weight", {{1}, {1.0f}}}});
  for (int kind = 0; kind < 4; ++kind) {
    CAPTURE(kind);
    if (kind == 0) write_file(entry / "model.safetensors", good.substr(0, good.size() / 2));
    if (kind == 1) write_file(entry / "model.safetensors", "");
    if (kind == 2) std::filesystem::remove(entry / "model.safetensors");
    if (kind == 3) write_store(*other, {}, entry);  // whole, but of another model
    source.reads = 0;
    CHECK(cached_store(source, {}, dir.path())->names() == names);
    CHECK(source.reads > 0);
    CHECK(read_file(entry / "model.safetensors") == good);
    CHECK(folders(dir.path()).size() == 1);
  }
}

TEST_CASE("what a killed build left behind is removed by the next one") {
  TempDir dir;
  const CountingSource source(tiny_llama());
  const std::string key = store_cache_key(source, {});
  std::filesystem::create_directories(dir / (key + ".tmp-1-0"));
  write_file(dir / (key + ".tmp-1-0") / "model.safetensors.tmp-1-0", "half");
  std::filesystem::create_directories(dir / "other.tmp-1-0");
  cached_store(source, {}, dir.path());
  auto left = folders(dir.path());
  std::sort(left.begin(), left.end());
  std::vector<std::string> want = {key, "other.tmp-1-0"};
  std::sort(want.begin(), want.end());
  CHECK(left == want);
}

TEST_CASE("a failed build leaves nothing that looks whole") {
  TempDir dir;
  auto tensors = tiny_llama();
  tensors["model.norm.weight"].values[0] = std::numeric_limits<float>::quiet_NaN();
  const auto source = memory_source(std::move(tensors));
  CHECK(contains(error_of([&] { cached_store(*source, {}, dir.path()); }, ErrorCode::numeric), "model.norm.weight"));
  CHECK(folders(dir.path()).empty());
  write_file(dir / "file", "x");
  CHECK(
      contains(error_of([&] { cached_store(*memory_source(tiny_llama()), {}, dir / "file" / "cache"); }, ErrorCode::io),
               "cannot be created"));
}

TEST_CASE("several threads and processes at once get the same store") {
  TempDir dir;
  const CountingSource source(tiny_llama());
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int code = 1;
      try {
        code = cached_store(source, {}, dir.path(), {}, 1)->names().size() == source.tensors().size() ? 0 : 2;
      } catch (...) {
      }
      ::_exit(code);
    }
    children.push_back(pid);
  }
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back(
          [&] { good += cached_store(source, {}, dir.path(), {}, 1)->names().size() == source.tensors().size(); });
  }
  CHECK(good == 3);
  for (const pid_t pid : children) {
    int status = -1;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  CHECK(folders(dir.path()).size() == 1);
}
