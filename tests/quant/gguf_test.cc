// SPDX-License-Identifier: Apache-2.0
#include "quant/gguf.h"

#include <doctest/doctest.h>

#include <cmath>

#include "quant_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::shared_ptr<const GgufFile> open_bytes(const TempDir& dir, const std::string& bytes) {
  write_file(dir / "m.gguf", bytes);
  return GgufFile::open(dir / "m.gguf");
}
std::string open_error(const std::string& bytes) {
  TempDir dir;
  return error_of([&] { open_bytes(dir, bytes); });
}

std::string f32_bytes(int64_t n, float first = 0) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = first + static_cast<float>(i);
  return raw(v);
}

GgufBuilder llama(uint32_t version, uint32_t heads, uint32_t kv_heads) {
  GgufBuilder b(version);
  b.value_text("general.architecture", "llama");
  b.value_u32("llama.attention.head_count", heads);
  b.value_u32("llama.attention.head_count_kv", kv_heads);
  return b;
}

}  // namespace

TEST_CASE("metadata of every type comes back, in all versions") {
  for (const uint32_t version : {1u, 2u, 3u}) {
    CAPTURE(version);
    TempDir dir;
    GgufBuilder b(version);
    b.value("u8", 0, raw(uint8_t{200}));
    b.value("i8", 1, raw(int8_t{-100}));
    b.value("u16", 2, raw(uint16_t{60000}));
    b.value("i16", 3, raw(int16_t{-30000}));
    b.value("u32", 4, raw(uint32_t{4000000000u}));
    b.value("i32", 5, raw(int32_t{-2000000000}));
    b.value("f32", 6, raw(1.5f));
    b.value("bool", 7, raw(uint8_t{1}));
    b.value_text("text", "h\0\xc3\xa9");
    b.value("u64", 10, raw(uint64_t{1} << 62));
    b.value("i64", 11, raw(int64_t{-7}));
    b.value("f64", 12, raw(0.25));
    b.value("huge", 10, raw(~uint64_t{0}));
    b.value_text_array("words", {"a", "", "ccc"});
    b.value("ints", 9, raw(uint32_t{5}) + b.count(2) + raw(int32_t{-1}) + raw(int32_t{7}));
    b.value("bools", 9, raw(uint32_t{7}) + b.count(2) + raw(uint8_t{1}) + raw(uint8_t{0}));
    b.value("floats", 9, raw(uint32_t{6}) + b.count(2) + raw(0.5f) + raw(-2.0f));
    b.value("nested", 9, raw(uint32_t{9}) + b.count(1) + raw(uint32_t{0}) + b.count(1) + raw(uint8_t{3}));
    b.value_u32("last", 9);
    const auto f = open_bytes(dir, b.bytes());
    CHECK(f->version() == version);
    CHECK(f->integer("u8") == 200);
    CHECK(f->integer("i8") == -100);
    CHECK(f->integer("u16") == 60000);
    CHECK(f->integer("i16") == -30000);
    CHECK(f->integer("u32") == 4000000000);
    CHECK(f->integer("i32") == -2000000000);
    CHECK(f->integer("u64") == int64_t{1} << 62);
    CHECK(f->integer("i64") == -7);
    CHECK(f->number("f32") == 1.5);
    CHECK(f->number("f64") == 0.25);
    CHECK(f->number("u8") == 200.0);
    CHECK(f->boolean("bool"));
    CHECK(f->text("text") == std::string_view("h"));  // the literal ends at its zero byte
    CHECK(f->text_array("words") == std::vector<std::string_view>{"a", "", "ccc"});
    CHECK(f->integer_array("ints") == std::vector<int64_t>{-1, 7});
    CHECK(f->integer_array("bools") == std::vector<int64_t>{1, 0});
    CHECK(f->float_array("floats") == std::vector<float>{0.5f, -2.0f});
    CHECK(f->is_array("nested"));
    CHECK_FALSE(f->is_array("u8"));
    CHECK(f->integer("last") == 9);
    CHECK_FALSE(f->find_text("none"));
    CHECK(f->keys().size() == 19);
    CHECK(contains(error_of([&] { f->integer("none"); }), "'none' is missing"));
    CHECK(contains(error_of([&] { f->integer("text"); }), "'text' is string, expected an integer"));
    CHECK(contains(error_of([&] { f->find_text("u8"); }), "'u8' is u8, expected a string"));
    CHECK(contains(error_of([&] { f->integer("f32"); }), "expected an integer"));
    CHECK(contains(error_of([&] { f->integer("huge"); }), "below 2^63"));
    CHECK(contains(error_of([&] { f->boolean("u8"); }), "expected a bool"));
    CHECK(contains(error_of([&] { f->text_array("ints"); }), "an array of i32, expected an array of strings"));
    CHECK(contains(error_of([&] { f->text_array("text"); }), "expected an array of strings"));
    CHECK(contains(error_of([&] { f->integer_array("floats"); }), "expected an array of integers"));
    CHECK(contains(error_of([&] { f->float_array("ints"); }), "expected an array of floats"));
    CHECK(contains(error_of([&] { f->integer("ints"); }), "an array of i32, expected an integer"));
    CHECK(contains(error_of([&] { f->number("words"); }), "expected a number"));
  }
}

TEST_CASE("tensors have row-major shapes, and each type decodes as ggml does") {
  TempDir dir;
  GgufBuilder b;
  b.value_text("general.architecture", "qwen2");
  b.tensor("f32", {3, 2}, 0, f32_bytes(6, 1));
  b.tensor("f16", {2}, 1, raw(std::vector<uint16_t>{0x3c00, 0xc500}));
  b.tensor("bf16", {1, 2}, 30, raw(std::vector<uint16_t>{0x3f80, 0xc0a0}));
  std::string q40, q41, q80;
  for (int block = 0; block < 2; ++block) {
    q40 += raw(static_cast<uint16_t>(block ? 0x4000 : 0x3800));                      // 2.0, 0.5
    q41 += raw(static_cast<uint16_t>(0x3400)) + raw(static_cast<uint16_t>(0xbc00));  // 0.25, -1.0
    q80 += raw(static_cast<uint16_t>(0x3800));
    for (int i = 0; i < 16; ++i) q40 += static_cast<char>(i | (15 - i) << 4);
    for (int i = 0; i < 16; ++i) q41 += static_cast<char>((15 - i) | i << 4);
    for (int i = 0; i < 32; ++i) q80 += static_cast<char>(i * 8 - 128);
  }
  b.tensor("q4_0", {32, 2}, 2, q40);
  b.tensor("q4_1", {64}, 3, q41);
  b.tensor("q8_0", {32, 1, 2}, 8, q80);
  b.tensor("q6_k", {256}, 14, std::string(210, '\1'));
  const auto f = open_bytes(dir, b.bytes());
  const auto decode = [&](const char* name, int64_t r0, int64_t n) {
    const auto* t = f->find_tensor(name);
    REQUIRE(t);
    std::vector<float> out(static_cast<size_t>(n * t->cols()));
    gguf_decode_rows(*t, r0, n, out.data());
    return out;
  };
  CHECK(f->find_tensor("f32")->shape == std::vector<int64_t>{2, 3});
  CHECK(f->find_tensor("q8_0")->shape == std::vector<int64_t>{2, 1, 32});
  CHECK(decode("f32", 1, 1) == std::vector<float>{4, 5, 6});
  CHECK(decode("f16", 0, 1) == std::vector<float>{1.0f, -5.0f});
  CHECK(decode("bf16", 1, 1) == std::vector<float>{-5.0f});
  const auto a = decode("q4_0", 0, 2), c = decode("q4_1", 0, 1), d = decode("q8_0", 1, 1);
  for (int i = 0; i < 16; ++i) {
    CHECK(a[i] == (i - 8) * 0.5f);
    CHECK(a[16 + i] == (15 - i - 8) * 0.5f);
    CHECK(a[32 + i] == (i - 8) * 2.0f);
    CHECK(c[i] == (15 - i) * 0.25f - 1.0f);
    CHECK(c[16 + i] == i * 0.25f - 1.0f);
  }
  for (int i = 0; i < 32; ++i) CHECK(d[i] == (i * 8 - 128) * 0.5f);
  CHECK(decode("q4_0", 1, 1) == std::vector<float>(a.begin() + 32, a.end()));
  CHECK(contains(error_of([&] { decode("q6_k", 0, 1); }), "'q6_k' is stored as Q6_K"));
  CHECK(contains(error_of([&] { decode("f32", 2, 1); }, ErrorCode::internal), "of 2"));
}

TEST_CASE("a llama file gives HF names, with the rows of q and k in HF's order") {
  for (const uint32_t version : {1u, 3u}) {
    CAPTURE(version);
    TempDir dir;
    const int64_t heads = 4, kv = 2, dim = 6, in = 3;
    // The converter's permutation: HF's row (head, part, j) goes to (head, j, part).
    const auto permuted = [&](int64_t n_heads, int64_t cols, float base) {
      std::vector<float> out(static_cast<size_t>(n_heads * dim * cols));
      for (int64_t h = 0; h < n_heads; ++h)
        for (int64_t part = 0; part < 2; ++part)
          for (int64_t j = 0; j < dim / 2; ++j)
            for (int64_t c = 0; c < cols; ++c)
              out[static_cast<size_t>(((h * dim / 2 + j) * 2 + part) * cols + c)] =
                  base + static_cast<float>(((h * 2 + part) * dim / 2 + j) * cols + c);
      return raw(out);
    };
    GgufBuilder b = llama(version, heads, kv);
    b.tensor("token_embd.weight", {3, 5}, 0, f32_bytes(15));
    b.tensor("output_norm.weight", {3}, 0, f32_bytes(3));
    b.tensor("output.weight", {3, 5}, 0, f32_bytes(15));
    b.tensor("rope_freqs.weight", {3}, 0, f32_bytes(3));
    b.tensor("blk.1.attn_q.weight", {3, 24}, 0, permuted(heads, in, 0));
    b.tensor("blk.1.attn_q.bias", {24}, 0, permuted(heads, 1, 0));
    b.tensor("blk.1.attn_k.weight", {3, 12}, 0, permuted(kv, in, 100));
    b.tensor("blk.1.attn_v.weight", {3, 12}, 0, f32_bytes(36));
    b.tensor("blk.1.attn_output.weight", {24, 3}, 0, f32_bytes(72));
    b.tensor("blk.1.attn_norm.weight", {3}, 0, f32_bytes(3));
    b.tensor("blk.1.ffn_norm.weight", {3}, 0, f32_bytes(3));
    b.tensor("blk.1.ffn_gate.weight", {3, 2}, 0, f32_bytes(6));
    b.tensor("blk.1.ffn_up.weight", {3, 2}, 0, f32_bytes(6));
    b.tensor("blk.1.ffn_down.weight", {2, 3}, 0, f32_bytes(6));
    write_file(dir / "m.gguf", b.bytes());
    const auto s = open_model_files(dir / "m.gguf");
    std::vector<std::string> names;
    for (const auto& t : s->tensors()) names.push_back(t.name);
    CHECK(names == std::vector<std::string>{
                       "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
                       "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.bias",
                       "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight",
                       "model.layers.1.self_attn.o_proj.weight", "model.layers.1.input_layernorm.weight",
                       "model.layers.1.post_attention_layernorm.weight", "model.layers.1.mlp.gate_proj.weight",
                       "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"});
    const auto rows = [&](const std::string& name, int64_t r0, int64_t n) {
      const auto i = static_cast<size_t>(s->find(name));
      std::vector<float> out(static_cast<size_t>(n * s->tensors()[i].cols()));
      s->read_rows(i, r0, n, out.data());
      return out;
    };
    const auto counting = [](float first, int64_t n) {
      std::vector<float> v(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = first + static_cast<float>(i);
      return v;
    };
    CHECK(rows("model.layers.1.self_attn.q_proj.weight", 0, 24) == counting(0, 72));
    CHECK(rows("model.layers.1.self_attn.q_proj.weight", 7, 3) == counting(21, 9));
    CHECK(rows("model.layers.1.self_attn.q_proj.bias", 0, 24) == counting(0, 24));
    CHECK(rows("model.layers.1.self_attn.q_proj.bias", 5, 4) == counting(5, 4));
    CHECK(rows("model.layers.1.self_attn.k_proj.weight", 0, 12) == counting(100, 36));
    CHECK(rows("model.layers.1.self_attn.v_proj.weight", 2, 1) == counting(6, 3));
    CHECK(rows("model.norm.weight", 1, 2) == counting(1, 2));
    CHECK(s->tensors()[3].shape == std::vector<int64_t>{24, 3});
  }
}

TEST_CASE("other architectures are not permuted; unknown tensors and bad head counts are errors") {
  TempDir dir;
  GgufBuilder b;
  b.value_text("general.architecture", "qwen2");
  b.tensor("blk.0.attn_q.weight", {2, 8}, 0, f32_bytes(16));
  b.tensor("blk.0.attn_q.bias", {8}, 0, f32_bytes(8));
  write_file(dir / "m.gguf", b.bytes());
  const auto s = open_model_files(dir / "m.gguf");
  std::vector<float> out(16);
  s->read_rows(0, 0, 8, out.data());
  for (int i = 0; i < 16; ++i) CHECK(out[static_cast<size_t>(i)] == static_cast<float>(i));
  CHECK(s->tensors()[1].name == "model.layers.0.self_attn.q_proj.bias");

  const auto problem = [&](const GgufBuilder& g) {
    write_file(dir / "x.gguf", g.bytes());
    return error_of([&] { open_model_files(dir / "x.gguf"); });
  };
  GgufBuilder unknown = llama(3, 2, 2);
  unknown.tensor("blk.0.ssm_conv.weight", {2}, 0, f32_bytes(2));
  CHECK(contains(problem(unknown), "'blk.0.ssm_conv.weight' of architecture 'llama'"));
  GgufBuilder odd = llama(3, 3, 3);
  odd.tensor("blk.0.attn_q.weight", {2, 8}, 0, f32_bytes(16));
  CHECK(contains(problem(odd), "do not divide into 3 heads"));
  GgufBuilder none;
  none.value_text("general.architecture", "llama");
  none.tensor("blk.0.attn_q.weight", {2, 8}, 0, f32_bytes(16));
  CHECK(contains(problem(none), "'llama.attention.head_count' is missing"));
  GgufBuilder nothing;
  nothing.tensor("output.weight", {2}, 0, f32_bytes(2));
  CHECK(contains(problem(nothing), "general.architecture"));
}

TEST_CASE("gemma's norms are stored with one added, and sandwich norms have their HF names") {
  TempDir dir;
  GgufBuilder b;
  b.value_text("general.architecture", "gemma2");
  b.tensor("blk.0.attn_norm.weight", {2}, 0, f32_bytes(2, 1.5f));
  b.tensor("blk.0.post_attention_norm.weight", {2}, 0, f32_bytes(2, 1));
  b.tensor("blk.0.ffn_norm.weight", {2}, 0, f32_bytes(2, 1));
  b.tensor("blk.0.post_ffw_norm.weight", {2}, 0, f32_bytes(2, 1));
  b.tensor("output_norm.weight", {2}, 0, f32_bytes(2, 1));
  b.tensor("token_embd.weight", {2, 1}, 0, f32_bytes(2, 1));
  write_file(dir / "m.gguf", b.bytes());
  const auto s = open_model_files(dir / "m.gguf");
  std::vector<std::string> names;
  for (const auto& t : s->tensors()) names.push_back(t.name);
  CHECK(names == std::vector<std::string>{"model.layers.0.input_layernorm.weight",
                                          "model.layers.0.post_attention_layernorm.weight",
                                          "model.layers.0.pre_feedforward_layernorm.weight",
                                          "model.layers.0.post_feedforward_layernorm.weight", "model.norm.weight",
                                          "model.embed_tokens.weight"});
  float v[2];
  s->read_rows(0, 0, 2, v);
  CHECK(v[0] == 0.5f);
  CHECK(v[1] == 1.5f);
  s->read_rows(5, 0, 1, v);
  CHECK(v[0] == 1.0f);
}

TEST_CASE("names that are not weights of a model have no HF name") {
  for (const char* name :
       {"blk.0.attn_q", "blk.x.attn_q.weight", "blk..attn_q.weight", "blk.-1.attn_q.weight", "blk.0", "blk.", "",
        ".weight", "blk.0.nothing.weight", "output.scale", "blk.0.attn_q.weight.more", "blk.99999999999.attn_q.weight"})
    CHECK(hf_name_of_gguf(name, "llama") == "");
  CHECK(hf_name_of_gguf("blk.31.attn_k_norm.weight", "qwen3") == "model.layers.31.self_attn.k_norm.weight");
  CHECK(hf_name_of_gguf("blk.0.ffn_up.weight", "phi3") == "model.layers.0.mlp.gate_up_proj.weight");
  CHECK(hf_name_of_gguf("blk.0.attn_qkv.weight", "phi3") == "model.layers.0.self_attn.qkv_proj.weight");
  CHECK(hf_name_of_gguf("blk.0.ffn_norm.weight", "gemma") == "model.layers.0.post_attention_layernorm.weight");
}

TEST_CASE("damaged headers are refused in words") {
  CHECK(contains(open_error(""), "an empty file"));
  CHECK(contains(open_error("GGU"), "does not start with 'GGUF'"));
  CHECK(contains(open_error("GGUF"), "cut short"));
  CHECK(contains(open_error("version https://git-lfs.github.com/spec/v1"), "Git LFS pointer"));
  CHECK(contains(open_error("GGUF" + raw(uint32_t{0x03000000}) + std::string(16, '\0')), "big-endian"));
  CHECK(contains(open_error("GGUF" + raw(uint32_t{4}) + std::string(16, '\0')), "version 4"));
  CHECK(contains(open_error("GGUF" + raw(uint32_t{0}) + std::string(16, '\0')), "version 0"));
  CHECK(contains(open_error("GGUF" + raw(uint32_t{3}) + raw(~uint64_t{0}) + raw(uint64_t{0})), "tensors"));
  CHECK(contains(open_error("GGUF" + raw(uint32_t{3}) + raw(uint64_t{0}) + raw(~uint64_t{0})), "metadata values"));
  const auto value = [](uint32_t type, const std::string& bytes) {
    GgufBuilder b;
    b.value("k", type, bytes);
    return open_error(b.bytes());
  };
  CHECK(contains(value(13, "xxxxxxxx"), "type of 'k' is 13"));
  CHECK(contains(value(8, raw(~uint64_t{0})), "'k'"));
  CHECK(contains(value(8, raw(uint64_t{5}) + "abc"), "needs 5 bytes"));
  CHECK(contains(value(9, raw(uint32_t{8}) + raw(uint64_t{1} << 61)), "strings"));
  CHECK(contains(value(9, raw(uint32_t{10}) + raw(uint64_t{1} << 61)), "values of 8 bytes"));
  CHECK(contains(value(9, raw(uint32_t{9}) + raw(uint64_t{1} << 61)), "cut short"));
  CHECK(contains(value(7, raw(uint8_t{2})), "a bool is 2"));
  std::string deep = raw(uint32_t{9}) + raw(uint64_t{1});
  for (int i = 0; i < 50; ++i) deep += raw(uint32_t{9}) + raw(uint64_t{1});
  CHECK(contains(value(9, deep), "nested too deeply"));
  GgufBuilder twice;
  twice.value_u32("k", 1);
  twice.value_u32("k", 2);
  CHECK(contains(open_error(twice.bytes()), "'k' stands twice"));
  for (const uint32_t alignment : {0u, 24u, 1u << 21}) {
    GgufBuilder b;
    b.value_u32("general.alignment", alignment);
    CHECK(contains(open_error(b.bytes()), "general.alignment"));
  }
}

TEST_CASE("damaged tensor entries are refused in words") {
  const auto tensor = [](const std::vector<uint64_t>& dims, uint32_t type, const std::string& data) {
    GgufBuilder b;
    b.tensor("t", dims, type, data);
    return open_error(b.bytes());
  };
  CHECK(tensor({4}, 0, f32_bytes(4)).empty());
  CHECK(contains(tensor({}, 0, f32_bytes(4)), "0 dimensions"));
  CHECK(contains(tensor({1, 1, 1, 1, 1}, 0, f32_bytes(4)), "5 dimensions"));
  CHECK(contains(tensor({0}, 0, f32_bytes(4)), "is 0"));
  CHECK(contains(tensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, f32_bytes(4)), "overflows"));
  CHECK(contains(tensor({uint64_t{1} << 63}, 0, f32_bytes(4)), "overflows"));
  CHECK(contains(tensor({5}, 0, f32_bytes(4)), "needs 20 bytes"));
  CHECK(contains(tensor({4}, 99, f32_bytes(4)), "unknown type 99"));
  CHECK(contains(tensor({33}, 2, std::string(100, '\0')), "do not divide into Q4_0 blocks of 32"));
  GgufBuilder twice;
  twice.tensor("t", {1}, 0, f32_bytes(1));
  twice.tensor("t", {1}, 0, f32_bytes(1));
  CHECK(contains(open_error(twice.bytes()), "'t' stands twice"));
  GgufBuilder apart;
  apart.tensor("a", {8}, 0, f32_bytes(8));
  apart.tensor("b", {8}, 0, f32_bytes(8));
  std::string bytes = apart.bytes();
  const size_t offset = apart.header_size() - 8;  // of the second tensor
  CHECK(open_error(bytes).empty());
  bytes.replace(offset, 8, raw(uint64_t{0}));
  CHECK(contains(open_error(bytes), "overlap"));
  bytes.replace(offset, 8, raw(uint64_t{4}));
  CHECK(contains(open_error(bytes), "not a multiple of 32"));
  bytes.replace(offset, 8, raw(~uint64_t{0} - 31));
  CHECK(contains(open_error(bytes), "cut short"));
}
