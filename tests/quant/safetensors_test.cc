// SPDX-License-Identifier: Apache-2.0
#include "quant/safetensors.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "quant/tensor_source.h"
#include "quant_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::string open_error(const std::string& bytes) {
  TempDir dir;
  write_file(dir / "x.safetensors", bytes);
  return error_of([&] { SafetensorsFile::open(dir / "x.safetensors"); });
}
std::string header_error(const std::string& header, size_t data_bytes) {
  return open_error(safetensors_bytes(header, std::string(data_bytes, '\0')));
}

std::string one_tensor(const std::string& name, float value) {
  return safetensors_bytes(R"({")" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", raw(value));
}

}  // namespace

TEST_CASE("what the writer writes, the reader reads") {
  TempDir dir;
  const std::vector<float> a = reference_values(6, 1, 1.0f), b = reference_values(32, 2, 1.0f);
  const std::vector<uint16_t> c = {0x3f80, 0xc000, 0x0001};
  const std::string d = "abcdefg";
  {
    SafetensorsWriter w(dir / "m.safetensors",
                        {{"bytes", "U8", {7}},
                         {"half", "BF16", {3, 1}},
                         {"a", "F32", {2, 3}},
                         {"b", "F32", {32}},
                         {"none", "F32", {0, 5}}},
                        {{"format", "pt"}, {"note", "\"quoted\" ü"}});
    w.write(3, 64, std::span(b).subspan(16));  // any order, any pieces
    w.write(0, 0, std::span(d));
    w.write(2, 0, std::span(a).first(1));
    w.write(1, 0, std::span(c));
    w.write(3, 0, std::span(b).first(16));
    w.write(2, 4, std::span(a).subspan(1));
    CHECK_FALSE(std::filesystem::exists(dir / "m.safetensors"));
    w.finish();
  }
  const auto f = SafetensorsFile::open(dir / "m.safetensors");
  CHECK(f->metadata().at("note") == "\"quoted\" ü");
  REQUIRE(f->entries().size() == 5);
  CHECK(f->find("b")->offset % 64 == 0);
  CHECK(f->find("a")->offset % 4 == 0);
  CHECK(f->find("a")->shape == std::vector<int64_t>{2, 3});
  CHECK(f->find("none")->bytes == 0);
  CHECK(f->find("nothing") == nullptr);
  CHECK(std::memcmp(f->data(*f->find("a")).data(), a.data(), 24) == 0);
  CHECK(std::memcmp(f->data(*f->find("b")).data(), b.data(), 128) == 0);
  CHECK(std::memcmp(f->data(*f->find("bytes")).data(), d.data(), 7) == 0);
  std::vector<float> half(2);
  safetensors_decode(*f, *f->find("half"), 1, 2, half.data());
  CHECK(half == std::vector<float>{-2.0f, std::ldexp(1.0f, -133)});
  int files = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(dir.path())) ++files;
  CHECK(files == 1);
}

TEST_CASE("an unfinished or wrong write leaves the old file and no rest") {
  TempDir dir;
  write_file(dir / "m.safetensors", "old");
  {
    SafetensorsWriter w(dir / "m.safetensors", {{"a", "F32", {4}}});
    const float v[2] = {1, 2};
    w.write(0, 0, std::span(v));
    CHECK(contains(error_of([&] { w.write(0, 12, std::span(v)); }, ErrorCode::internal), "outside"));
    CHECK(contains(error_of([&] { w.finish(); }, ErrorCode::internal), "8 of 16 bytes"));
  }
  CHECK(read_file(dir / "m.safetensors") == "old");
  CHECK(contains(error_of(
                     [&] {
                       SafetensorsWriter(dir / "no" / "m", {{"a", "F32", {1}}});
                     },
                     ErrorCode::io),
                 "cannot be created"));
  CHECK(contains(error_of(
                     [&] {
                       SafetensorsWriter(dir / "n", {{"a", "F32", {1}}, {"a", "F32", {1}}});
                     },
                     ErrorCode::internal),
                 "taken"));
  int files = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(dir.path())) ++files;
  CHECK(files == 1);
  write_file_atomically(dir / "m.safetensors", "new");
  CHECK(read_file(dir / "m.safetensors") == "new");
}

TEST_CASE("a full disk is an error of its own kind and leaves the old file") {
  TempDir dir;
  write_file(dir / "m.safetensors", "old");
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<float> v(4096, 1.0f);
  const std::string e = error_of(
      [&] {
        SafetensorsWriter w(dir / "m.safetensors", {{"a", "F32", {4096}}});
        w.write(0, 0, std::span(v));
        w.finish();
      },
      ErrorCode::io);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  CHECK(contains(e, "m.safetensors"));
  CHECK(read_file(dir / "m.safetensors") == "old");
}

TEST_CASE("what is not safetensors is named") {
  CHECK(contains(open_error(""), "an empty file"));
  CHECK(contains(open_error("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"), "Git LFS pointer"));
  CHECK(contains(open_error("\n<!DOCTYPE html><html>"), "HTML"));
  CHECK(contains(open_error("PK\x03\x04 and so on"), "zip archive"));
  CHECK(contains(open_error("1234567"), "at least 8"));
  CHECK(contains(open_error(raw(uint64_t{100}) + "{}"), "100 bytes long, the file has 2"));
  CHECK(contains(open_error(raw(~uint64_t{0}) + "{}"), "header"));
  CHECK(contains(open_error(raw(uint64_t{2}) + "[]"), "does not start"));
  CHECK(contains(open_error(raw(uint64_t{3}) + "{\"a"), "not JSON"));
  CHECK(contains(error_of([] { SafetensorsFile::open("/nowhere/x.safetensors"); }), "cannot be opened"));
  TempDir dir;
  CHECK(contains(error_of([&] { SafetensorsFile::open(dir.path()); }), "not a regular file"));
}

TEST_CASE("every inconsistency of a header is refused with the tensor's name") {
  const auto t = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string f32 = R"("F32")";
  CHECK(header_error(t(f32, "[1]", "[0,4]"), 4).empty());
  CHECK(contains(header_error(t(f32, "[1000,1000]", "[0,4]"), 4), "'w': F32 [1000,1000] needs 4000000 bytes"));
  CHECK(contains(header_error(t(f32, "[4294967296,4294967296]", "[0,4]"), 4), "overflows"));
  CHECK(contains(header_error(t(f32, "[9223372036854775807,3]", "[0,4]"), 4), "overflows"));
  CHECK(contains(header_error(t(f32, "[18446744073709551615]", "[0,4]"), 4), "overflows"));
  CHECK(contains(header_error(t(f32, "[0,4611686018427387904]", "[0,0]"), 0), "overflows"));
  CHECK(contains(header_error(t("\"U8\"", "[4611686018427387904,0]", "[0,0]"), 0), "overflows"));
  CHECK(header_error(t(f32, "[0,4000]", "[0,0]"), 0).empty());
  CHECK(contains(header_error(t(f32, "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4), "9 dimensions"));
  for (const std::string d : {"-1", "1.0", "\"1\"", "null", "1e0", "18446744073709551616", "true"}) {
    CAPTURE(d);
    CHECK(contains(header_error(t(f32, str("[", d, "]"), "[0,4]"), 4), "whole number"));
    CHECK(contains(header_error(t(f32, "[1]", str("[0,", d, "]")), 4), "whole number"));
    CHECK(contains(header_error(t(f32, "[1]", str("[", d, ",4]")), 4), "whole number"));
  }
  CHECK(contains(header_error(t(f32, "[1]", "[4,0]"), 4), "reversed"));
  CHECK(contains(header_error(t(f32, "[1]", "[0,4,8]"), 4), "two numbers"));
  CHECK(contains(header_error(t(f32, "[1]", "[0]"), 4), "two numbers"));
  CHECK(contains(header_error(t(f32, "[1]", "7"), 4), "two numbers"));
  CHECK(contains(header_error(t(f32, "7", "[0,4]"), 4), "not a list"));
  CHECK(contains(header_error(t(f32, "[2]", "[0,8]"), 4), "cut short"));
  CHECK(contains(header_error(t("\"F31\"", "[1]", "[0,4]"), 4), "unknown dtype 'F31'"));
  CHECK(contains(header_error(t("5", "[1]", "[0,4]"), 4), "dtype is missing"));
  CHECK(contains(header_error(R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4), "dtype is missing"));
  CHECK(contains(header_error(R"({"w":[1]})", 4), "expected an object"));
  CHECK(contains(header_error(t(f32, "[1]", "[0,4]"), 5), "cover 4 bytes of data, the file has 5"));
  CHECK(contains(header_error(t(f32, "[1]", "[1,5]"), 5), "hole"));
  CHECK(contains(header_error("{}", 1), "cover 0 bytes"));
  CHECK(header_error("{}", 0).empty());
  const std::string two =
      R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"%":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})";
  CHECK(contains(header_error(std::string(two).replace(two.find('%'), 1, "v"), 6), "overlaps"));
  CHECK(contains(header_error(std::string(two).replace(two.find('%'), 1, "w"), 6), "'w' twice"));
  CHECK(contains(header_error(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
                 "'dtype' twice"));
  CHECK(contains(header_error(R"({"__metadata__":{"a":1}})", 0), "not a text"));
  CHECK(contains(header_error(R"({"__metadata__":3})", 0), "not an object"));
  CHECK(contains(header_error("{\"w\":" + std::string(100000, '['), 0), "header"));
  CHECK(contains(header_error("{\"w\":" + std::string(1000, '[') + std::string(1000, ']') + "}", 0),
                 "nested too deeply"));
}

TEST_CASE("all dtypes of weights are decoded; others are named") {
  TempDir dir;
  const double d[2] = {0.1, -3.5};
  const std::string header =
      R"({"d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},"h":{"dtype":"F16","shape":[3],"data_offsets":[16,22]},)"
      R"("i":{"dtype":"I32","shape":[1],"data_offsets":[22,26]}})";
  std::string data(reinterpret_cast<const char*>(d), 16);
  data += raw(std::vector<uint16_t>{0x3c00, 0x0001, 0xfbff}) + raw(int32_t{5});
  write_file(dir / "m.safetensors", safetensors_bytes(header, data));
  const auto source = open_model_files(dir.path());
  std::vector<float> out(3);
  source->read_rows(static_cast<size_t>(source->find("d")), 0, 2, out.data());
  CHECK(out[0] == 0.1f);
  CHECK(out[1] == -3.5f);
  source->read_rows(static_cast<size_t>(source->find("h")), 0, 3, out.data());
  CHECK(out == std::vector<float>{1.0f, std::ldexp(1.0f, -24), -65504.0f});
  CHECK(source->tensors()[1].stored_as == "F16");
  CHECK(contains(error_of([&] { source->read_rows(static_cast<size_t>(source->find("i")), 0, 1, out.data()); }),
                 "dtype I32"));
  CHECK(contains(error_of([&] { source->read_rows(0, 1, 2, out.data()); }, ErrorCode::internal), "rows 1 to 3 of 2"));
  CHECK(source->find("x") == -1);
}

TEST_CASE("a sharded folder is what its index says") {
  TempDir dir;
  write_file(dir / "a.safetensors", one_tensor("w1", 1));
  write_file(dir / "b.safetensors", one_tensor("w2", 2));
  write_file(dir / "stray.safetensors", "not even a file of tensors");
  const auto index = [&](const std::string& map) {
    write_file(dir / "model.safetensors.index.json", R"({"weight_map":)" + map + "}");
  };
  const auto problem = [&] { return error_of([&] { open_model_files(dir.path()); }); };

  index(R"({"w1":"a.safetensors","w2":"b.safetensors"})");
  const auto source = open_model_files(dir.path());
  REQUIRE(source->tensors().size() == 2);
  float v = 0;
  source->read_rows(static_cast<size_t>(source->find("w2")), 0, 1, &v);
  CHECK(v == 2.0f);

  index(R"({"w1":"a.safetensors","w2":"c.safetensors","w3":"d.safetensors"})");
  CHECK(contains(problem(), "2 of 3 shards are missing: c.safetensors, d.safetensors"));
  index(R"({"w1":"a.safetensors","w3":"b.safetensors"})");
  CHECK(contains(problem(), "'w3' in b.safetensors"));
  for (const std::string name :
       {"../a.safetensors", "/etc/passwd", "x/../a.safetensors", "..", "", "a\\b", "a\\u0000b"}) {
    CAPTURE(name);
    index(str(R"({"w1":")", name, R"("})"));
    CHECK_FALSE(problem().empty());
  }
  index(R"({"w1":"../a.safetensors"})");
  CHECK(contains(problem(), "plain name"));
  index(R"({"w1":5})");
  CHECK(contains(problem(), "plain name"));
  index("{}");
  CHECK(contains(problem(), "empty"));
  index("7");
  CHECK(contains(problem(), "no weight_map"));
  index("{");
  CHECK(contains(problem(), "not JSON"));
}

TEST_CASE("folders without an index hold one file; links stay inside") {
  TempDir dir;
  const auto problem = [&](const std::filesystem::path& p) { return error_of([&] { open_model_files(p); }); };
  std::filesystem::create_directories(dir / "m");
  CHECK(contains(problem(dir / "m"), "no *.safetensors"));
  CHECK(contains(problem(dir / "none"), "does not exist"));
  write_file(dir / "m" / "pytorch_model.bin", "x");
  CHECK(contains(problem(dir / "m"), "pickle"));
  write_file(dir / "outside", one_tensor("w", 1));
  std::filesystem::create_symlink(dir / "outside", dir / "m" / "a.safetensors");
  CHECK(contains(problem(dir / "m"), "outside the model's folder"));
  std::filesystem::remove(dir / "m" / "a.safetensors");
  write_file(dir / "m" / "a.safetensors", one_tensor("w", 1));
  CHECK(problem(dir / "m").empty());
  CHECK(contains(problem(dir / "m" / "a.safetensors"), "expected a model folder"));
  write_file(dir / "m" / "b.safetensors", one_tensor("w", 1));
  CHECK(contains(problem(dir / "m"),
                 "2 safetensors files and no model.safetensors.index.json: a.safetensors, b.safetensors"));

  // The layout of the Hugging Face cache: a snapshot links to the blobs beside it.
  std::filesystem::create_directories(dir / "repo" / "blobs");
  std::filesystem::create_directories(dir / "repo" / "snapshots" / "abc");
  write_file(dir / "repo" / "blobs" / "0123", one_tensor("w", 1));
  std::filesystem::create_symlink("../../blobs/0123", dir / "repo" / "snapshots" / "abc" / "model.safetensors");
  CHECK(problem(dir / "repo" / "snapshots" / "abc").empty());
}
