// SPDX-License-Identifier: Apache-2.0
// The cache of prepared data: found again, whole or absent, whatever else reads, writes, dies or trims.
#include "finetune/data/samples/token_cache.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "temp_dir.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
namespace fs = std::filesystem;

namespace {

std::vector<Sample> some_samples(size_t n, int32_t first) {
  std::vector<Sample> out(n);
  for (size_t i = 0; i < n; ++i) {
    out[i].id = i << 24;
    for (size_t k = 0; k <= i % 50; ++k) {
      out[i].ids.push_back(first + static_cast<int32_t>(i + k));
      out[i].trained.push_back(k > 0);
    }
  }
  return out;
}

SampleSet put(const TokenCache& cache, const std::string& key, const std::vector<Sample>& samples,
              std::string_view metadata = "m") {
  TokenCacheWriter w = cache.writer(key);
  for (const Sample& s : samples) w.add(s);
  SampleSet set = w.commit(metadata);
  CHECK(w.why_not_cached().empty());
  return set;
}

bool same(const SampleSet& set, const std::vector<Sample>& want) {
  return set.size() == want.size() &&
         std::equal(want.begin(), want.end(), set.begin(),
                    [](const Sample& a, const SampleView& b) { return SampleView(a) == b; });
}

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& item : fs::directory_iterator(folder)) out.push_back(item.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

void set_age(const fs::path& path, int hours) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

}  // namespace

TEST_CASE("keys: every piece counts, pieces do not run together, numbers are exact, files count by content") {
  const TempDir dir;
  const auto key = [](auto&&... pieces) {
    CacheKey k;
    (k.add("x", pieces), ...);
    return k.text();
  };
  CHECK(key("a", "b").size() == 32);
  CHECK(key("a", "b").find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(key("a", "b") == key(std::string("a"), "b"));
  const std::vector<std::string> keys{key(),
                                      key("a", "b"),
                                      key("ab", ""),
                                      key("", "ab"),
                                      key("b", "a"),
                                      key("a"),
                                      key(1),
                                      key(int64_t{1}),
                                      key(0.1),
                                      key(0.1 + 1e-17 + 1e-16),
                                      key(true),
                                      CacheKey().add("y", "a").text(),
                                      CacheKey().add("xa", "").text()};
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == keys.size());

  write_file(dir / "a", std::string(3 << 20, 'x') + "1");
  write_file(dir / "b", std::string(3 << 20, 'x') + "1");
  write_file(dir / "c", std::string(3 << 20, 'x') + "2");
  write_file(dir / "d", "");
  const auto of = [&](const std::string& name) { return CacheKey().add_file(dir / name).text(); };
  CHECK(of("a") == of("b"));
  CHECK(of("a") != of("c"));
  CHECK(of("d") != key());
  CHECK(contains(error_of([&] { of("none"); }, ErrorCode::io), (dir / "none").string()));
  CHECK(contains(error_of([&] { CacheKey().add_file(dir.path()); }, ErrorCode::io), "not a regular file"));
  ::mkfifo((dir / "pipe").c_str(), 0600);
  CHECK(contains(error_of([&] { of("pipe"); }, ErrorCode::io), "not a regular file"));
}

TEST_CASE("what is committed is found with its metadata; another key, an unfinished one and an empty folder are not") {
  const TempDir dir;
  const TokenCache cache(dir / "deep" / "tokens");
  const auto samples = some_samples(300, 5);
  CHECK_FALSE(cache.find("k"));
  CHECK(cache.trim(0) == 0);
  CHECK(same(put(cache, "k", samples, "{\"rows\": 300}"), samples));
  const auto found = cache.find("k");
  REQUIRE(found);
  CHECK(same(*found, samples));
  CHECK(found->metadata() == "{\"rows\": 300}");
  CHECK(found->hash() == SampleSet(samples).hash());
  CHECK_FALSE(cache.find("other"));
  {
    TokenCacheWriter unfinished = cache.writer("u");
    unfinished.add(samples[0]);
    CHECK_FALSE(cache.find("u"));
  }
  CHECK(files_in(cache.folder()) == std::vector<std::string>{"k.samples"});
  put(cache, "empty", {});
  REQUIRE(cache.find("empty"));
  CHECK(cache.find("empty")->empty());
}

TEST_CASE("a damaged entry is a miss, is told, and is replaced") {
  const TempDir dir;
  const TokenCache cache(dir.path());
  const auto samples = some_samples(20, 1);
  put(cache, "k", samples);
  const std::string bytes = read_file(cache.entry("k"));
  for (size_t i = 0; i < bytes.size(); i += 13) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    write_file(cache.entry("k"), damaged);
    std::string damage;
    CHECK_FALSE(cache.find("k", &damage));
    CHECK(contains(damage, cache.entry("k").string()));
    write_file(cache.entry("k"), bytes.substr(0, i));
    CHECK_FALSE(cache.find("k"));
  }
  put(cache, "k", samples);
  CHECK(same(*cache.find("k"), samples));
  fs::remove(cache.entry("k"));
  fs::create_directory(cache.entry("k"));  // somebody's mistake
  CHECK_FALSE(cache.find("k"));
  TokenCacheWriter w = cache.writer("k");
  w.add(samples[0]);
  CHECK(w.commit("").size() == 1);
  CHECK(contains(w.why_not_cached(), "cannot be put in place"));
}

TEST_CASE("what a killed writer leaves is removed when it is old, and not before") {
  const TempDir dir;
  const TokenCache cache(dir.path());
  const pid_t child = ::fork();
  if (child == 0) {
    TokenCacheWriter w = cache.writer("k");
    w.add(some_samples(1, 1)[0]);
    ::_exit(0);
  }
  REQUIRE(child > 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  const auto left = files_in(dir.path());
  REQUIRE(left.size() == 1);
  CHECK(left[0].starts_with("k.samples.tmp-"));
  CHECK_FALSE(cache.find("k"));
  put(cache, "a", some_samples(3, 1));
  CHECK(files_in(dir.path()).size() == 2);
  set_age(dir / left[0], 23);
  put(cache, "a", some_samples(3, 1));
  CHECK(files_in(dir.path()).size() == 2);
  set_age(dir / left[0], 25);
  put(cache, "a", some_samples(3, 1));
  CHECK(files_in(dir.path()) == std::vector<std::string>{"a.samples"});
}

TEST_CASE("trim removes what was not used for longest; sets in use stay valid") {
  const TempDir dir;
  const TokenCache cache(dir.path());
  const auto samples = some_samples(100, 1);
  for (const char* key : {"a", "b", "c", "d"}) put(cache, key, samples);
  const uint64_t each = fs::file_size(cache.entry("a"));
  int age = 8;
  for (const char* key : {"c", "a", "d", "b"}) set_age(cache.entry(key), age--);
  const auto in_use = cache.find("c");  // now the last used
  CHECK(cache.trim(4 * each) == 0);
  CHECK(cache.trim(3 * each) == each);
  CHECK(files_in(dir.path()) == std::vector<std::string>{"b.samples", "c.samples", "d.samples"});
  CHECK(cache.trim(2 * each - 1) == 2 * each);
  CHECK(files_in(dir.path()) == std::vector<std::string>{"c.samples"});
  write_file(dir / "other.txt", "x");
  CHECK(cache.trim(0) == each);
  CHECK(files_in(dir.path()) == std::vector<std::string>{"other.txt"});
  CHECK(same(*in_use, samples));
}

TEST_CASE("a cache that cannot be written does not stop anybody") {
  const TempDir dir;
  write_file(dir / "file", "x");
  const auto samples = some_samples(40, 1);
  const TokenCache cache(dir / "file" / "tokens");
  CHECK_FALSE(cache.find("k"));
  TokenCacheWriter w = cache.writer("k");
  for (const Sample& s : samples) w.add(s);
  const SampleSet set = w.commit("meta");
  CHECK(same(set, samples));
  CHECK(set.metadata() == "meta");
  CHECK(contains(w.why_not_cached(), "cannot be created"));

  const TokenCache gone(dir / "gone");  // the folder goes away while it writes
  TokenCacheWriter lost = gone.writer("k");
  for (const Sample& s : samples) lost.add(s);
  fs::remove_all(dir / "gone");
  CHECK(same(lost.commit(""), samples));
  CHECK(contains(lost.why_not_cached(), "cannot be put in place"));
}

TEST_CASE("writers and readers of one key at once: each gets a whole set") {
  const TempDir dir;
  const TokenCache cache(dir.path());
  const auto samples = some_samples(200, 7);
  const pid_t child = ::fork();  // another process does the same
  std::atomic<int> wrong{0}, found{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 30; ++i) {
          TokenCacheWriter w = cache.writer("k");
          for (const Sample& s : samples) w.add(s);
          wrong += !same(w.commit("m"), samples);
          wrong += !w.why_not_cached().empty();
          if (i % 10 == 9) cache.trim(0);
        }
      });
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          std::string damage;
          const auto set = cache.find("k", &damage);
          found += set.has_value();
          // Trimmed while being opened, and there again when the miss was looked into, is the only other way.
          wrong += set ? !same(*set, samples) : !damage.empty() && !contains(damage, "No such file");
        }
      });
  }
  if (child == 0) ::_exit(wrong == 0 ? 0 : 1);
  REQUIRE(child > 0);
  int status = 1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(wrong == 0);
  CHECK(found > 0);
  put(cache, "k", samples);
  CHECK(files_in(dir.path()) == std::vector<std::string>{"k.samples"});
}
