// SPDX-License-Identifier: Apache-2.0
// Real files from a folder beside the repository; skipped where it is absent.
#include <doctest/doctest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "quant/gguf.h"
#include "quant/nf4.h"
#include "quant/weight_store.h"
#include "quant_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::filesystem::path shared(const char* name) {
  const auto path = std::filesystem::path(BANTAM_SHARED_DATA) / name;
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: no ", path.string());
    return {};
  }
  return path;
}

std::vector<float> all(const TensorSource& s, const std::string& name) {
  const int64_t i = s.find(name);
  REQUIRE_MESSAGE(i >= 0, name);
  const auto& t = s.tensors()[static_cast<size_t>(i)];
  std::vector<float> out(static_cast<size_t>(t.rows() * t.cols()));
  s.read_rows(static_cast<size_t>(i), 0, t.rows(), out.data());
  return out;
}

}  // namespace

TEST_CASE("a version 1 file has the weights of the checkpoint that it was made from") {
  const auto gguf = shared("models/tinyllamas-stories-260k-f32.gguf"), bin = shared("models/stories260K.bin");
  if (gguf.empty() || bin.empty()) return;
  const auto file = GgufFile::open(gguf);
  CHECK(file->version() == 1);
  const auto source = gguf_source(file);
  // Layout of the checkpoint: 7 int32 (dim, hidden, layers, heads, kv heads, vocabulary, length), then f32 tensors.
  const std::string bytes = read_file(bin);
  int32_t h[7];
  REQUIRE(bytes.size() > sizeof h);
  std::memcpy(h, bytes.data(), sizeof h);
  const int64_t dim = h[0], hidden = h[1], layers = h[2], heads = h[3], kv_heads = h[4], vocab = std::abs(h[5]),
                kv = dim / heads * kv_heads;
  size_t at = sizeof h;
  const auto take = [&](int64_t n) {
    std::vector<float> v(static_cast<size_t>(n));
    REQUIRE(at + v.size() * 4 <= bytes.size());
    std::memcpy(v.data(), bytes.data() + at, v.size() * 4);
    at += v.size() * 4;
    return v;
  };
  // The checkpoint keeps rows of q and k in pairs (j, part); HF wants (part, j).
  const auto to_hf = [&](const std::vector<float>& w, int64_t n_heads) {
    const int64_t size = dim / heads;
    std::vector<float> out(w.size());
    for (int64_t r = 0; r < n_heads * size; ++r) {
      const int64_t head = r / size, part = r % size / (size / 2), j = r % (size / 2);
      std::copy_n(w.begin() + (head * size + 2 * j + part) * dim, dim, out.begin() + r * dim);
    }
    return out;
  };
  const auto check = [&](const char* name, int64_t n, int64_t permuted_heads = 0) {
    for (int64_t l = 0; l < layers; ++l) {
      const std::string full = str("model.layers.", l, ".", name, ".weight");
      CAPTURE(full);
      const auto w = take(n);
      CHECK(all(*source, full) == (permuted_heads ? to_hf(w, permuted_heads) : w));
    }
  };
  const auto embedding = take(vocab * dim);
  CHECK(all(*source, "model.embed_tokens.weight") == embedding);
  check("input_layernorm", dim);
  check("self_attn.q_proj", dim * dim, heads);
  check("self_attn.k_proj", dim * kv, kv_heads);
  check("self_attn.v_proj", dim * kv);
  check("self_attn.o_proj", dim * dim);
  check("post_attention_layernorm", dim);
  check("mlp.gate_proj", dim * hidden);
  check("mlp.down_proj", dim * hidden);
  check("mlp.up_proj", dim * hidden);
  CHECK(all(*source, "model.norm.weight") == take(dim));
  CHECK(file->text_array("tokenizer.ggml.tokens").size() == static_cast<size_t>(vocab));
}

TEST_CASE("a version 3 file with f16 weights is quantised and opened") {
  const auto gguf = shared("models/llama-2-tiny-random.gguf");
  if (gguf.empty()) return;
  const auto file = GgufFile::open(gguf);
  CHECK(file->version() == 3);
  CHECK(file->architecture() == "llama");
  CHECK(file->text_array("tokenizer.ggml.tokens").size() == 32000);
  CHECK(file->float_array("tokenizer.ggml.scores").size() == 32000);
  CHECK(file->integer_array("tokenizer.ggml.token_type").size() == 32000);
  const auto source = gguf_source(file);
  TempDir dir;
  write_store(*source, {}, dir / "s");
  const auto store = WeightStore::open(dir / "s");
  CHECK(store->layers() == 1);
  for (const auto& t : source->tensors()) {
    if (!is_quantised_tensor(t)) continue;
    CAPTURE(t.name);
    const auto e = weight_error(*source, static_cast<size_t>(source->find(t.name)), *store->find_matrix(t.name));
    CHECK(e.rms < 0.15 * e.source_rms);
    CHECK(e.rms > 0.01 * e.source_rms);
  }
  CHECK(all(*source, "model.embed_tokens.weight") == all(*store_source(store), "model.embed_tokens.weight"));
}

TEST_CASE("all tensors of converted models of five families have HF names") {
  const auto folder = shared("models/gguf_convert_expectations");
  if (folder.empty()) return;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    const auto keys = nlohmann::json::parse(read_file(item.path()));
    const std::string arch = keys["general.architecture"];
    CAPTURE(arch);
    std::set<std::string> names;
    size_t tensors = 0;
    for (const auto& [key, value] : keys.items()) {
      if ((!key.ends_with(".weight") && !key.ends_with(".bias")) || key.starts_with("rope_")) continue;
      CAPTURE(key);
      const std::string name = hf_name_of_gguf(key, arch);
      CHECK_FALSE(name.empty());
      names.insert(name);
      ++tensors;
    }
    CHECK(tensors > 100);
    CHECK(names.size() == tensors);
  }
}
