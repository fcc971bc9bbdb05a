// SPDX-License-Identifier: Apache-2.0
#include "quant/weight_store.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/nf4_codebook.h"
#include "quant/mapped_file.h"
#include "quant/nf4.h"
#include "quant/safetensors.h"
#include "store_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::vector<float> decoded(const WeightView& w) {
  std::vector<float> out(static_cast<size_t>(w.rows * w.cols));
  decode_weight(w, 0, w.rows * w.cols, out.data());
  return out;
}

// Every tensor of two stores, value by value.
void check_same(const WeightStore& a, const WeightStore& b) {
  REQUIRE(a.names() == b.names());
  for (const auto& name : a.names()) {
    CAPTURE(name);
    const WeightView *x = a.find_matrix(name), *y = b.find_matrix(name);
    REQUIRE((x == nullptr) == (y == nullptr));
    if (x) {
      CHECK(x->format == y->format);
      CHECK(decoded(*x) == decoded(*y));
    } else {
      const auto v = a.find_vector(name), u = b.find_vector(name);
      CHECK(std::vector<float>(v.begin(), v.end()) == std::vector<float>(u.begin(), u.end()));
    }
  }
}

// A source whose tensors claim to be bf16, with values that are.
class Bf16Source : public TensorSource {
 public:
  explicit Bf16Source(std::map<std::string, MemoryTensor> tensors) {
    for (auto& [name, t] : tensors)
      for (float& v : t.values) v = to_f32(to_bf16(v));
    inner_ = memory_source(std::move(tensors));
    list_ = inner_->tensors();
    for (auto& t : list_) t.natural = DType::bf16;
  }
  const std::vector<SourceTensor>& tensors() const override { return list_; }
  void read_rows(size_t i, int64_t r0, int64_t n, float* out) const override { inner_->read_rows(i, r0, n, out); }
  std::string fingerprint() const override { return inner_->fingerprint(); }

 private:
  std::unique_ptr<TensorSource> inner_;
  std::vector<SourceTensor> list_;
};

const std::string kQ = "model.layers.0.self_attn.q_proj.weight";

}  // namespace

namespace {
// What is known of a store before it is made.
size_t planned_bytes(const TensorSource& source, const QuantConfig& quant) {
  size_t sum = 0;
  for (const SourceTensor& t : source.tensors()) sum += stored_bytes(t, quant);
  return sum;
}
}  // namespace

TEST_CASE("a written store opens mapped, and equals the one made in memory") {
  const auto source = memory_source(tiny_llama());
  for (const auto& quant :
       {QuantConfig{QuantType::nf4, true}, QuantConfig{QuantType::nf4, false}, QuantConfig{QuantType::none, false}}) {
    CAPTURE(static_cast<int>(quant.type));
    CAPTURE(quant.double_quant);
    TempDir dir;
    size_t calls = 0;
    StoreOptions options;
    options.files["config.json"] = with_quantization_config(kTinyConfig, quant);
    options.progress = [&](const StoreProgress& p) { calls += p.done <= p.total && !p.tensor.empty(); };
    write_store(*source, quant, dir / "store", options);
    CHECK(calls == source->tensors().size());
    const auto mapped = WeightStore::open(dir / "store"), memory = WeightStore::in_memory(*source, quant);
    check_same(*mapped, *memory);
    CHECK(mapped->mapped());
    CHECK_FALSE(memory->mapped());
    CHECK(mapped->layers() == 2);
    CHECK(mapped->bytes() == memory->bytes());
    CHECK(mapped->bytes() == planned_bytes(*source, quant));
    CHECK(contains(read_file(dir / "store" / "config.json"), "quantization_config") == (quant.type == QuantType::nf4));

    const WeightLease layer = mapped->acquire(1), top = mapped->acquire(WeightStore::kTop);
    const WeightView& q = layer.matrix("self_attn.q_proj.weight");
    CHECK(q.rows == 64);
    CHECK(q.cols == 64);
    CHECK(q.format == (quant.type == QuantType::nf4 ? WeightFormat::nf4 : WeightFormat::f32));
    if (quant.type == QuantType::nf4) CHECK((q.absmax == nullptr) == quant.double_quant);
    CHECK(reinterpret_cast<uintptr_t>(q.data) % 64 == 0);
    CHECK(top.matrix("lm_head.weight").format == WeightFormat::f32);
    CHECK(layer.vector("input_layernorm.weight").size() == 64);
    CHECK(layer.has("mlp.up_proj.weight"));
    CHECK_FALSE(layer.has("model.norm.weight"));
    CHECK(contains(error_of([&] { layer.matrix("self_attn.x_proj.weight"); }),
                   "no matrix 'model.layers.1.self_attn.x_proj.weight'"));
    CHECK(contains(error_of([&] { layer.matrix("input_layernorm.weight"); }), "no matrix"));
    CHECK(contains(error_of([&] { layer.vector("self_attn.q_proj.bias"); }), "no vector"));
    CHECK(contains(error_of([&] { mapped->acquire(2); }), "no layer 2, it has 2"));
    mapped->prefetch(0);
    mapped->prefetch(WeightStore::kTop);
    mapped->prefetch(77);
  }
}

TEST_CASE("a lease keeps its store alive") {
  const auto source = memory_source(tiny_llama());
  WeightLease lease = WeightStore::in_memory(*source, {})->acquire(0);
  CHECK(decoded(lease.matrix("mlp.down_proj.weight")).size() == 64 * 96);
  CHECK(error_of([] { WeightLease().matrix("x"); }) != "");
}

TEST_CASE("only matrices of layers that end in _proj.weight are quantised") {
  const auto is = [](const std::string& name, std::vector<int64_t> shape) {
    SourceTensor t;
    t.name = name;
    t.shape = std::move(shape);
    return is_quantised_tensor(t);
  };
  CHECK(is("model.layers.0.mlp.up_proj.weight", {2, 3}));
  CHECK(is("model.layers.12.self_attn.qkv_proj.weight", {2, 3}));
  CHECK_FALSE(is("model.layers.0.self_attn.q_proj.bias", {2}));
  CHECK_FALSE(is("model.layers.0.mlp.up_proj.weight", {2}));
  CHECK_FALSE(is("model.layers.x.mlp.up_proj.weight", {2, 3}));
  CHECK_FALSE(is("model.layers.01.mlp.up_proj.weight", {2, 3}));
  CHECK_FALSE(is("model.layers.-1.mlp.up_proj.weight", {2, 3}));
  CHECK_FALSE(is("model.layers.99999999999.mlp.up_proj.weight", {2, 3}));
  CHECK_FALSE(is("lm_head.weight", {2, 3}));
  CHECK_FALSE(is("model.vision_proj.weight", {2, 3}));
}

TEST_CASE("bf16 sources stay bf16 where they are not quantised; vectors are given as f32") {
  const Bf16Source source(tiny_llama());
  TempDir dir;
  write_store(source, {}, dir / "s");
  const auto store = WeightStore::open(dir / "s"), memory = WeightStore::in_memory(source, {});
  check_same(*store, *memory);
  CHECK(store->mapped());
  const WeightView& e = *store->find_matrix("model.embed_tokens.weight");
  CHECK(e.format == WeightFormat::bf16);
  CHECK(store->bytes() == planned_bytes(source, {}));
  std::vector<float> want(40 * 64), norm(64);
  source.read_rows(static_cast<size_t>(source.find("model.embed_tokens.weight")), 0, 40, want.data());
  CHECK(decoded(e) == want);
  source.read_rows(static_cast<size_t>(source.find("model.norm.weight")), 0, 64, norm.data());
  const auto v = store->find_vector("model.norm.weight");
  CHECK(std::vector<float>(v.begin(), v.end()) == norm);
  const auto file = SafetensorsFile::open(dir / "s" / "model.safetensors");
  CHECK(file->find("model.norm.weight")->dtype == "BF16");
  const auto blob = file->data(*file->find(kQ + ".quant_state.bitsandbytes__nf4"));
  CHECK(contains(std::string(reinterpret_cast<const char*>(blob.data()), blob.size()), "\"dtype\":\"bfloat16\""));
}

TEST_CASE("a folder written by bitsandbytes opens; its decoded weights are a source") {
  TempDir dir;
  write_file(dir / "model.safetensors", read_file(BANTAM_TESTS_DIR "/golden/nf4_bnb.safetensors"));
  const auto store = WeightStore::open(dir.path());
  CHECK(store->names().size() == 24);
  CHECK(store->layers() == 2);
  const WeightView *plain = store->find_matrix("model.layers.0.large_proj.weight"),
                   *nested = store->find_matrix("model.layers.1.large_proj.weight");
  REQUIRE(plain);
  REQUIRE(nested);
  CHECK(plain->absmax != nullptr);
  CHECK(nested->absmax == nullptr);
  const auto x = reference_values(200 * 130, 2, 0.04f), a = decoded(*plain), b = decoded(*nested);
  for (size_t i = 0; i < x.size(); ++i) {
    REQUIRE(std::fabs(a[i] - x[i]) < 0.16f * 0.16f);
    REQUIRE(std::fabs(b[i] - x[i]) < 0.16f * 0.17f);
  }
  const auto source = open_model_files(dir.path());
  const auto i = static_cast<size_t>(source->find("model.layers.1.large_proj.weight"));
  CHECK(source->tensors()[i].stored_as == "NF4");
  std::vector<float> rows(3 * 130);
  source->read_rows(i, 7, 3, rows.data());
  CHECK(rows == std::vector<float>(b.begin() + 7 * 130, b.begin() + 10 * 130));
}

TEST_CASE("data that a writer did not align is copied, not read misaligned") {
  // A text of odd length before f32 data: what the reference writer would not produce, but may legally.
  const auto x = reference_values(64, 3, 1.0f);
  const Nf4Matrix m = nf4_quantise(x.data(), 1, 64, false);
  const std::string state = R"({"quant_type":"nf4","blocksize":64,"shape":[1,64]})" + std::string(1, ' ');
  const std::string base = "model.layers.0.mlp.up_proj.weight";
  std::string data = state, header = "{";
  const auto add = [&](const std::string& name, const char* dtype, const std::string& shape, const std::string& bytes) {
    header += str("\"", name, R"(":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":[)", data.size(),
                  ",", data.size() + bytes.size(), "]},");
    data += bytes;
  };
  header += str("\"", base, R"(.quant_state.bitsandbytes__nf4":{"dtype":"U8","shape":[)", state.size(),
                R"(],"data_offsets":[0,)", state.size(), "]},");
  REQUIRE(state.size() % 2 == 1);
  add(base + ".absmax", "F32", "[1]", raw(m.absmax));
  add(base + ".quant_map", "F32", "[16]", raw(std::vector<float>(kNf4Code, kNf4Code + 16)));
  add("model.norm.weight", "F32", "[2]", raw(std::vector<float>{1, 2}));
  add("model.embed_tokens.weight", "BF16", "[1,2]", raw(std::vector<uint16_t>{0x3f80, 0x4000}));
  add(base, "U8", "[32,1]", std::string(static_cast<const char*>(m.codes.view().data), 32));
  header.back() = '}';
  TempDir dir;
  header.append((8 - header.size() % 8) % 8, ' ');
  write_file(dir / "model.safetensors", safetensors_bytes(header, data));
  const auto store = WeightStore::open(dir.path());
  CHECK(decoded(*store->find_matrix(base)) == decoded(m.view()));
  CHECK(store->find_vector("model.norm.weight")[1] == 2.0f);
  CHECK(decoded(*store->find_matrix("model.embed_tokens.weight")) == std::vector<float>{1.0f, 2.0f});
  CHECK_FALSE(store->mapped());  // the embedding is a copy
}

TEST_CASE("a store with a missing or inconsistent part is refused, with the tensor's name") {
  TempDir dir;
  write_store(*memory_source(tiny_llama()), {}, dir / "good");
  const auto good = SafetensorsFile::open(dir / "good" / "model.safetensors");
  struct Part {
    std::string dtype, data;
    std::vector<int64_t> shape;
  };
  // Opens a copy in which `change` altered the parts.
  const auto problem = [&](const std::function<void(std::map<std::string, Part>&)>& change) {
    std::map<std::string, Part> parts;
    for (const auto& e : good->entries()) {
      const auto d = good->data(e);
      parts[e.name] = {e.dtype, std::string(reinterpret_cast<const char*>(d.data()), d.size()), e.shape};
    }
    change(parts);
    std::vector<SafetensorsWriter::Tensor> list;
    for (const auto& [name, p] : parts) list.push_back({name, p.dtype, p.shape});
    std::filesystem::create_directories(dir / "bad");
    SafetensorsWriter w(dir / "bad" / "model.safetensors", list);
    size_t i = 0;
    for (const auto& [name, p] : parts) w.write(i++, 0, std::span(p.data));
    w.finish();
    return error_of([&] { WeightStore::open(dir / "bad"); });
  };
  CHECK(problem([](auto&) {}).empty());
  for (const char* suffix :
       {"", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".quant_state.bitsandbytes__nf4"}) {
    CAPTURE(suffix);
    const std::string e = problem([&](auto& p) { p.erase(kQ + suffix); });
    CHECK(contains(e, kQ));
  }
  const auto state = [&](const std::function<void(nlohmann::json&)>& change) {
    return problem([&](auto& p) {
      Part& part = p[kQ + ".quant_state.bitsandbytes__nf4"];
      auto j = nlohmann::json::parse(part.data);
      change(j);
      part.data = j.dump();
      part.shape = {static_cast<int64_t>(part.data.size())};
    });
  };
  CHECK(state([](auto&) {}).empty());
  CHECK(contains(state([](auto& j) { j["quant_type"] = "fp4"; }), "'quant_type' is \"fp4\""));
  CHECK(contains(state([](auto& j) { j["blocksize"] = 128; }), "'blocksize'"));
  CHECK(contains(state([](auto& j) { j.erase("blocksize"); }), "no 'blocksize'"));
  CHECK(contains(state([](auto& j) { j["shape"] = {64, 65}; }), "bytes of codes, expected"));
  CHECK(contains(state([](auto& j) { j["shape"] = {64, -64}; }), "'shape'"));
  CHECK(contains(state([](auto& j) { j["shape"] = {64}; }), "'shape'"));
  CHECK(contains(state([](auto& j) { j["shape"] = "64"; }), "'shape'"));
  CHECK(contains(state([](auto& j) { j["shape"] = {int64_t{1} << 40, int64_t{1} << 40}; }), "overflows"));
  CHECK(contains(state([](auto& j) { j.erase("shape"); }), "no 'shape'"));
  CHECK(contains(state([](auto& j) { j.erase("nested_offset"); }), "no 'nested_offset'"));
  CHECK(contains(state([](auto& j) { j["nested_offset"] = "x"; }), "'nested_offset'"));
  CHECK(contains(state([](auto& j) { j["nested_offset"] = 1e300; }), "not finite"));
  CHECK(contains(state([](auto& j) { j["nested_blocksize"] = 64; }), "'nested_blocksize'"));
  CHECK(contains(state([](auto& j) { j["nested_dtype"] = "float16"; }), "'nested_dtype'"));
  CHECK(contains(state([](auto& j) { j = 5; }), "not a JSON object"));
  CHECK(
      contains(problem([](auto& p) { p[kQ + ".quant_state.bitsandbytes__nf4"].data[0] = 'x'; }), "not a JSON object"));
  const auto reshape = [&](const std::string& suffix, const char* dtype, int64_t n, size_t bytes) {
    return problem([&](auto& p) { p[kQ + suffix] = {dtype, std::string(bytes, '\1'), {n}}; });
  };
  CHECK(contains(reshape("", "U8", 2047, 2047), "2047 bytes of codes, expected 2048"));
  CHECK(contains(reshape(".absmax", "U8", 63, 63), "63 values, expected U8 with 64"));
  CHECK(contains(reshape(".absmax", "F32", 64, 256), "expected U8"));
  CHECK(contains(reshape(".nested_absmax", "F32", 2, 8), "expected F32 with 1"));
  CHECK(contains(reshape(".nested_quant_map", "F32", 255, 1020), "expected F32 with 256"));
  CHECK(contains(reshape(".quant_map", "F32", 16, 64), "not the NF4 code"));
  CHECK(contains(problem([](auto& p) {
                   p[kQ + ".nested_quant_map"].data.replace(0, 4, raw(std::numeric_limits<float>::infinity()));
                 }),
                 "value 0 is not finite"));
  CHECK(contains(problem([](auto& p) {
                   p["model.layers.0.x.weight.quant_state.bitsandbytes__fp4"] = {"U8", "{}", {2}};
                 }),
                 "fp4"));
  CHECK(contains(problem([](auto& p) { p["model.layers.0.mlp.up_proj.SCB"] = {"I8", "x", {1}}; }), "dtype I8"));
}

TEST_CASE("weights that are not finite stop the writing and leave no file") {
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight", "model.norm.weight"}) {
    CAPTURE(name);
    auto tensors = tiny_llama();
    tensors[name].values[5] = std::numeric_limits<float>::infinity();
    const auto source = memory_source(std::move(tensors));
    TempDir dir;
    CHECK(contains(error_of([&] { write_store(*source, {}, dir / "s"); }, ErrorCode::numeric),
                   str("'", name, "': 1 values")));
    CHECK(std::filesystem::is_empty(dir / "s"));
    CHECK(contains(error_of([&] { WeightStore::in_memory(*source, {}); }, ErrorCode::numeric), "first at index 5"));
  }
}

TEST_CASE("a folder with shards in it, or a wrong name, is not written over") {
  TempDir dir;
  write_file(dir / "model.safetensors.index.json", "{}");
  const auto source = memory_source(tiny_llama());
  CHECK(contains(error_of([&] { write_store(*source, {}, dir.path()); }, ErrorCode::io), "sharded model"));
  StoreOptions options;
  options.files["../x"] = "";
  CHECK(contains(error_of([&] { write_store(*source, {}, dir / "s", options); }, ErrorCode::internal), "plain name"));
  CHECK(contains(error_of([] { with_quantization_config("[]", {}); }), "not a JSON object"));
}

TEST_CASE("the store that golden/check_store.py loaded with transformers is the one written today") {
  const std::string text = read_file(BANTAM_TESTS_DIR "/golden/store_check.json");
  const auto golden = nlohmann::json::parse(text);
  const auto source = memory_source(tiny_llama());
  for (const bool nested : {false, true}) {
    TempDir dir;
    // BANTAM_KEEP_STORE=folder keeps what is written, for the script.
    const char* keep = std::getenv("BANTAM_KEEP_STORE");
    const std::filesystem::path folder =
        (keep ? std::filesystem::path(keep) : dir.path()) / (nested ? "nested" : "plain");
    StoreOptions options;
    options.files["config.json"] = with_quantization_config(kTinyConfig, {QuantType::nf4, nested});
    write_store(*source, {QuantType::nf4, nested}, folder, options);
    const std::string bytes = read_file(folder / "model.safetensors");
    const auto& want = golden[nested ? "nested" : "plain"];
    CHECK(str(std::hex, hash_bytes(std::as_bytes(std::span(bytes)))) == want["file_hash"].get<std::string>());
    CHECK(want["quantised_matrices"] == 14);
    CHECK(want["max_difference_of_weights"] == 0.0);
  }
}
