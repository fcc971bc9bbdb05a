// SPDX-License-Identifier: Apache-2.0
// Sets of samples: in memory and in files they are the same, and no damage of a file goes unseen.
#include "finetune/data/samples/sample_set.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>

#include "finetune/data/batch.h"
#include "finetune/data/samples/sample_storage.h"
#include "finetune/data/samples/xxh3.h"
#include "temp_dir.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
namespace fs = std::filesystem;

namespace {

// Lengths from 0 on, weights in about every third.
std::vector<Sample> random_set(size_t n, size_t longest, uint64_t seed) {
  RandomText random(seed);
  std::vector<Sample> out(n);
  for (size_t i = 0; i < n; ++i) {
    Sample& s = out[i];
    s.id = uint64_t{random.next()} << 32 | i;
    const size_t length = random.next() % (longest + 1);
    const bool weights = random.next() % 3 == 0;
    for (size_t k = 0; k < length; ++k) {
      s.ids.push_back(static_cast<int32_t>(random.next() % 100000));
      s.trained.push_back(k > 0 && random.next() % 2 ? 1 : 0);
      if (weights) s.weights.push_back(0.25f * static_cast<float>(1 + random.next() % 8));
    }
  }
  return out;
}

void check_equal(const SampleSet& set, const std::vector<Sample>& want) {
  REQUIRE(set.size() == want.size());
  int64_t tokens = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    CHECK(set[i] == SampleView(want[i]));
    CHECK(set.id(i) == want[i].id);
    CHECK(set.length(i) == static_cast<int64_t>(want[i].ids.size()));
    CHECK(set[i].targets() == want[i].targets());
    tokens += set.length(i);
  }
  CHECK(set.tokens() == tokens);
}

SampleSet write_set(const fs::path& path, const std::vector<Sample>& samples, std::string_view metadata = {}) {
  SampleWriter writer(path);
  for (const Sample& s : samples) writer.add(s);
  return writer.finish(metadata);
}

// Files of this process grow to `bytes` only, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const char* folder) {
    if (const char* old = std::getenv("TMPDIR")) before_ = old;
    ::setenv("TMPDIR", folder, 1);
  }
  ~TemporaryFolder() { before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1); }

 private:
  std::string before_;
};

}  // namespace

TEST_CASE("what is written is read: in memory, in a file, in a file without a name") {
  const TempDir dir;
  for (const auto& [n, longest] : {std::pair<size_t, size_t>{0, 1}, {1, 0}, {1, 1}, {7, 3}, {500, 200}, {3, 3000000}}) {
    const auto samples = random_set(n, longest, n + longest);
    const SampleSet memory(samples);
    check_equal(memory, samples);
    const SampleSet file = write_set(dir / "s", samples, "some text");
    check_equal(file, samples);
    CHECK(file.metadata() == "some text");
    const SampleSet again = SampleSet::open(dir / "s");
    check_equal(again, samples);
    CHECK(again.metadata() == "some text");
    SampleWriter writer = SampleWriter::temporary();
    for (const Sample& s : samples) writer.add(s);
    CHECK(writer.size() == n);
    const SampleSet temporary = writer.finish("x");
    check_equal(temporary, samples);
    CHECK(temporary.metadata() == "x");
    CHECK_FALSE(writer.in_file());
    for (const SampleSet* s : {&file, &again, &temporary}) {
      CHECK(s->hash() == memory.hash());
      CHECK(s->smallest_token() == memory.smallest_token());
      CHECK(s->largest_token() == memory.largest_token());
    }
  }
  CHECK(SampleSet().hash() == SampleSet(std::vector<Sample>()).hash());
  CHECK(SampleSet().largest_token() == -1);
}

TEST_CASE("the hash follows every part of every sample, and their order") {
  const std::vector<Sample> base{{1, {5, 6}, {0, 1}, {}}, {2, {7}, {0}, {}}};
  std::vector<std::vector<Sample>> others(8, base);
  others[0][0].id = 3;
  others[1][0].ids[1] = 7;
  others[2][0].trained[1] = 0;
  others[3][0].weights = {1, 1};
  std::swap(others[4][0], others[4][1]);
  others[5].pop_back();
  others[6].push_back({});
  others[7] = {{1, {5}, {0}, {}}, {2, {6, 7}, {1, 0}, {}}};
  for (const auto& o : others) CHECK(SampleSet(o).hash() != SampleSet(base).hash());
  const SampleSet set(base);
  CHECK(set.subset({0, 1}).hash() == set.subset({0, 1}).hash());
  CHECK(set.subset({1, 0}).hash() != set.subset({0, 1}).hash());
  CHECK(set.smallest_token() == 5);
  CHECK(set.largest_token() == 7);
}

TEST_CASE("subsets share the tokens, also of subsets, and outlive the set") {
  const TempDir dir;
  const auto samples = random_set(50, 20, 3);
  SampleSet part;
  const int32_t* tokens = nullptr;
  {
    const SampleSet whole = write_set(dir / "s", samples);
    part = whole.subset({40, 3, 3, 17}).subset({1, 3, 2, 0});
    tokens = whole[40].ids.data();
  }
  fs::remove(dir / "s");
  check_equal(part, {samples[3], samples[17], samples[3], samples[40]});
  CHECK(part[3].ids.data() == tokens);
  CHECK(part.subset({}).empty());
  CHECK(part.subset({}).tokens() == 0);
  CHECK(contains(error_of([&] { part.subset({4}); }, ErrorCode::internal), "sample 4 of 4"));
  CHECK_THROWS_AS(SampleSet().subset({0}), Error);
  size_t n = 0;
  for (const SampleView s : part) n += s.ids.size();
  CHECK(static_cast<int64_t>(n) == part.tokens());
}

TEST_CASE("samples whose parts do not fit are refused") {
  CHECK(contains(error_of(
                     [] {
                       SampleSet({{9, {1, 2}, {0}, {}}});
                     },
                     ErrorCode::internal),
                 "sample 9 has 2 ids, 1 marks"));
  CHECK_THROWS_AS(SampleSet({{9, {1, 2}, {0, 1}, {1}}}), Error);
  for (const float w : {0.0f, -1.0f, INFINITY, NAN}) CHECK_THROWS_AS(SampleSet({{9, {1, 2}, {0, 1}, {1, w}}}), Error);
  CHECK(SampleSet({{9, {1, 2}, {0, 1}, {NAN, 2}}}).size() == 1);  // no loss, no weight
}

TEST_CASE("a damaged or cut file is an error or what it was, wherever the damage is") {
  const TempDir dir;
  const auto samples = random_set(9, 5, 1);
  const SampleSet want = write_set(dir / "s", samples, "meta");
  const std::string bytes = read_file(dir / "s");
  REQUIRE(bytes.size() > 400);
  int errors = 0, unseen = 0;
  const auto try_open = [&](const std::string& damaged, bool verify) {
    fs::remove(dir / "d");  // a new file is written faster than an old one again
    write_file(dir / "d", damaged);
    try {
      const SampleSet got = SampleSet::open(dir / "d", verify);
      CHECK(got.size() == want.size());
      CHECK(got.metadata() == want.metadata());
      if (verify) check_equal(got, samples);
      for (const SampleView s : got) unseen += s.targets() < 0;  // reads every mark
      return true;
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::io);
      CHECK(contains(e.what(), (dir / "d").string()));
      ++errors;
      return false;
    }
  };
  CHECK(try_open(bytes, true));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << bit);
      CHECK_FALSE(try_open(damaged, true));
      try_open(damaged, false);  // at worst other tokens
    }
    CHECK_FALSE(try_open(bytes.substr(0, i), true));
    CHECK_FALSE(try_open(bytes.substr(0, i), false));
  }
  CHECK_FALSE(try_open(bytes + '\0', false));
  CHECK(unseen == 0);
  CHECK(contains(error_of([&] { SampleSet::open(dir / "none"); }, ErrorCode::io), "No such file"));
  CHECK(contains(error_of([&] { SampleSet::open(dir.path()); }, ErrorCode::io), "not a regular file"));
  ::mkfifo((dir / "pipe").c_str(), 0600);
  CHECK_THROWS_AS(SampleSet::open(dir / "pipe"), Error);
}

TEST_CASE("a file made to deceive, with the right checksums, is an error") {
  const TempDir dir;
  write_set(dir / "s", random_set(9, 5, 1), "meta");
  const std::string bytes = read_file(dir / "s");
  const auto message = [&](const std::function<void(SampleFileHeader&, std::string&)>& change) {
    std::string file = bytes;
    SampleFileHeader h;
    std::memcpy(&h, file.data(), sizeof h);
    const size_t records = h.records_bytes;
    change(h, file);
    h.index_hash = Xxh3::of(file.data() + sizeof h + records, file.size() - sizeof h - records);
    h.records_hash = Xxh3::of(file.data() + sizeof h, records);
    h.header_hash = Xxh3::of(&h, offsetof(SampleFileHeader, header_hash));
    std::memcpy(file.data(), &h, sizeof h);
    fs::remove(dir / "d");
    write_file(dir / "d", file);
    return error_of([&] { SampleSet::open(dir / "d"); }, ErrorCode::io);
  };
  using Header = SampleFileHeader;
  CHECK(contains(message([](Header& h, std::string&) { h.version = 2; }), "format version 2, this program reads 1"));
  CHECK(contains(message([](Header& h, std::string&) { h.reserved[3] = 1; }), "of another kind"));
  CHECK(contains(message([](Header& h, std::string&) { h.header_bytes = 64; }), "of another kind"));
  for (uint64_t Header::*field :
       {&Header::samples, &Header::records_bytes, &Header::metadata_bytes, &Header::file_bytes, &Header::tokens})
    for (const uint64_t by :
         {uint64_t{1}, uint64_t{8}, uint64_t{0} - 1, uint64_t{0} - 8, uint64_t{1} << 63, (uint64_t{1} << 62) / 5})
      CHECK(contains(message([&](Header& h, std::string&) { h.*field += by; }), "not a whole file of samples"));
  // The index: offsets, lengths.
  uint64_t records = 0;
  std::memcpy(&records, bytes.data() + offsetof(Header, records_bytes), sizeof records);
  const size_t index = sizeof(Header) + records;
  for (size_t i = index + 9 * 8; i < index + 9 * 20; ++i)
    for (const int bit : {0, 3, 7})
      CHECK(contains(message([&](Header&, std::string& f) { f[i] = static_cast<char>(f[i] ^ 1 << bit); }),
                     "not a whole file of samples"));
}

TEST_CASE("a file appears whole or not at all, and sets of an older file of that name stay what they are") {
  const TempDir dir;
  const auto samples = random_set(20, 9, 2), others = random_set(30, 9, 4);
  const SampleSet first = write_set(dir / "s", samples);
  {
    SampleWriter writer(dir / "s");
    writer.add(others[0]);
    CHECK_THROWS_AS(SampleSet::open(dir / "s"), Error);
  }
  CHECK_FALSE(fs::exists(dir / "s"));
  write_set(dir / "s", others);
  check_equal(first, samples);
  check_equal(SampleSet::open(dir / "s"), others);
  CHECK(contains(error_of([&] { SampleWriter(dir / "no" / "s"); }, ErrorCode::io), "cannot be created"));
}

TEST_CASE("a full disk: an error that names the file, or the set goes on elsewhere") {
  const TempDir dir;
  const auto samples = random_set(3000, 2000, 7);  // some 20 MB
  for (const rlim_t limit : {0, 100, 5 << 20, 9 << 20}) {
    const FullDisk full(limit);
    const std::string message = error_of([&] { write_set(dir / "s", samples); }, ErrorCode::io);
    CHECK(contains(message, (dir / "s").string() + ": cannot be written: "));
    CHECK(fs::is_empty(dir.path()));
    // Its own disk twice: then memory. /dev/shm is another one, and full after as many bytes.
    for (const char* folder : {"/tmp", "/dev/shm", "/nowhere"}) {
      const TemporaryFolder temporary(folder);
      SampleWriter writer(dir / "s", SampleWriter::WhenFull::go_on);
      for (const Sample& s : samples) writer.add(s);
      const SampleSet set = writer.finish("m");
      CHECK_FALSE(writer.in_file());
      CHECK_FALSE(writer.why_not_in_file().empty());
      CHECK(message.starts_with(writer.why_not_in_file()));
      CHECK(fs::is_empty(dir.path()));
      check_equal(set, samples);
      CHECK(set.hash() == SampleSet(samples).hash());
      CHECK(set.metadata() == "m");
    }
  }
  {  // the records fit, the index does not
    const int64_t records = static_cast<int64_t>(fs::file_size((write_set(dir / "s", samples), dir / "s"))) - 2000;
    const FullDisk full(static_cast<rlim_t>(records));
    SampleWriter writer(dir / "t", SampleWriter::WhenFull::go_on);
    for (const Sample& s : samples) writer.add(s);
    check_equal(writer.finish(), samples);
    CHECK_FALSE(writer.in_file());
    CHECK_FALSE(fs::exists(dir / "t"));
  }
  SampleWriter writer(dir / "t", SampleWriter::WhenFull::go_on);
  writer.add(samples[0]);
  writer.finish();
  CHECK(writer.in_file());
}

TEST_CASE("plans and steps of a mapped set are those of the set in memory; many threads read at once") {
  const TempDir dir;
  std::vector<Sample> samples = random_set(300, 60, 11);
  std::erase_if(samples, [](const Sample& s) { return s.ids.empty(); });
  const SampleSet memory(samples), mapped = write_set(dir / "s", samples);
  for (const bool packing : {true, false}) {
    const BatchOptions o{
        .micro_batch_size = 2, .gradient_accumulation_steps = 3, .max_seq_length = 60, .sample_packing = packing};
    for (const int64_t epoch : {0, 1, 2}) {
      const EpochPlan plan = plan_epoch(memory, o, epoch);
      CHECK(plan == plan_epoch(mapped, o, epoch));
      const auto compare = [&] {
        for (int64_t i = 0; i < plan.steps(); ++i) {
          const StepBatch a = make_step(memory, plan.step(i)), b = make_step(mapped, plan.step(i));
          if (a.total_weight != b.total_weight || a.micro.size() != b.micro.size()) return false;
          for (size_t m = 0; m < a.micro.size(); ++m) {
            const Batch &x = a.micro[m], &y = b.micro[m];
            if (x.ids != y.ids || x.labels != y.labels || x.weights != y.weights || x.positions != y.positions ||
                x.cu_seqlens != y.cu_seqlens || x.sample_ids != y.sample_ids)
              return false;
          }
        }
        return true;
      };
      std::vector<int> equal(4, 0);
      {
        std::vector<std::jthread> threads;
        for (int& e : equal) threads.emplace_back([&] { e = compare(); });
      }
      CHECK(equal == std::vector<int>(4, 1));
    }
  }
}
