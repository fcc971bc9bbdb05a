// SPDX-License-Identifier: Apache-2.0
// Cut and damaged containers: always a message, never a crash, whatever byte it is.
#include <doctest/doctest.h>

#include <functional>
#include <random>

#include "quant/gguf.h"
#include "quant/safetensors.h"
#include "quant/weight_store.h"
#include "store_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

// Lengths at which a file is cut, longest first, so that it only has to be shortened: the last byte, each KiB of the
// data, every byte of the header.
std::vector<size_t> cuts(size_t header, size_t size) {
  std::vector<size_t> out = {size - 1};
  for (size_t i = header + (size - 1 - header) / 1024 * 1024; i > header; i -= 1024)
    if (i < size - 1) out.push_back(i);
  for (size_t i = header + 1; i-- > 0;) out.push_back(i);
  return out;
}

// Writes the start of a file anew; the rest stays.
void replace_head(const std::filesystem::path& path, const std::string& head) {
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
      .write(head.data(), static_cast<std::streamsize>(head.size()));
}

// Reads everything that a file offers; true when it opened.
bool read_all(const std::filesystem::path& path) {
  const auto source = open_model_files(path);
  for (size_t i = 0; i < source->tensors().size(); ++i) {
    const auto& t = source->tensors()[i];
    std::vector<float> out(static_cast<size_t>(t.rows() * t.cols()));
    try {
      source->read_rows(i, 0, t.rows(), out.data());
    } catch (const Error& e) {
      if (e.code() != ErrorCode::model) throw;
    }
  }
  return true;
}

// Only Error(model) may come out.
bool opens(const std::function<void()>& f) {
  try {
    f();
    return true;
  } catch (const Error& e) {
    REQUIRE(e.code() == ErrorCode::model);
    REQUIRE(std::string(e.what()).size() > 10);
    return false;
  }
}

// Damages up to three bytes of the header of the file at path, again and again, and calls check.
void flip(const std::filesystem::path& path, const std::string& good, size_t header, int rounds,
          const std::function<void()>& check) {
  write_file(path, good);
  std::mt19937 random(7);
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = good.substr(0, header);
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int k = 0; k < changes; ++k) {
      const size_t at = random() % header;
      const int kind = static_cast<int>(random() % 4);
      if (kind == 0) bytes[at] = static_cast<char>(random());
      if (kind == 1) bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
      if (kind == 2) bytes[at] = static_cast<char>(0xff);
      if (kind == 3) bytes[at] = "0123456789[]{}\",:-e."[random() % 20];
    }
    replace_head(path, bytes);
    check();
  }
}

std::string gguf_fixture(uint32_t version) {
  GgufBuilder b(version);
  b.value_text("general.architecture", "llama");
  b.value_u32("llama.attention.head_count", 2);
  b.value_u32("llama.attention.head_count_kv", 1);
  b.value_text_array("tokenizer.ggml.tokens", {"<s>", "a", "b"});
  b.value("tokenizer.ggml.scores", 9, raw(uint32_t{6}) + b.count(3) + raw(0.0f) + raw(1.0f) + raw(2.0f));
  b.tensor("token_embd.weight", {32, 30}, 8, std::string(30 * 34, '\2'));
  b.tensor("blk.0.attn_q.weight", {32, 16}, 2, std::string(16 * 18, '\3'));
  b.tensor("blk.0.attn_k.weight", {32, 8}, 3, std::string(8 * 20, '\4'));
  b.tensor("blk.0.attn_norm.weight", {32}, 0, std::string(128, '\0'));
  return b.bytes();
}

}  // namespace

TEST_CASE("a safetensors store cut anywhere, or with a damaged header, gives a message") {
  TempDir dir;
  write_store(*memory_source(tiny_llama()), {}, dir / "good");
  const std::string good = read_file(dir / "good" / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  header += 8;
  std::filesystem::create_directories(dir / "bad");
  const auto path = dir / "bad" / "model.safetensors";
  write_file(path, good);
  for (const size_t n : cuts(header, good.size())) {
    CAPTURE(n);
    std::filesystem::resize_file(path, n);
    REQUIRE_FALSE(opens([&] { WeightStore::open(dir / "bad"); }));
  }
  int opened = 0;
  flip(path, good, header, 1500, [&] { opened += opens([&] { WeightStore::open(dir / "bad"); }); });
  CHECK(opened < 300);  // a changed name, or blanks, may pass
  write_file(path, good);
  CHECK(opens([&] { read_all(dir / "bad"); }));
}

TEST_CASE("a GGUF file cut anywhere, or with a damaged header, gives a message") {
  for (const uint32_t version : {1u, 2u, 3u}) {
    CAPTURE(version);
    TempDir dir;
    const std::string good = gguf_fixture(version);
    const size_t header = good.size() - 1800;
    const auto path = dir / "m.gguf";
    write_file(path, good);
    REQUIRE(read_all(path));
    for (const size_t n : cuts(header, good.size())) {
      CAPTURE(n);
      std::filesystem::resize_file(path, n);
      REQUIRE_FALSE(opens([&] { GgufFile::open(path); }));
    }
    flip(path, good, header, 1500, [&] { opens([&] { read_all(path); }); });
  }
}
