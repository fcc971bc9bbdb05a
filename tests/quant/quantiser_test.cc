// SPDX-License-Identifier: Apache-2.0
// Quantising on a backend with memory of its own: the bytes of the host's quantiser, in matrices and in files, with a
// bounded share of the device's memory. On the emulated device, or the library that BANTAM_TEST_BACKEND names.
#include "quant/quantiser.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "kernels/backend.h"
#include "quant/gguf.h"
#include "quant/store_cache.h"
#include "store_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

const std::string kDevice =
    std::getenv("BANTAM_TEST_BACKEND") ? std::getenv("BANTAM_TEST_BACKEND") : BANTAM_CUDA_ON_CPU;

// While this lives, calls of the emulated CUDA see the variable.
struct Fault {
  explicit Fault(const char* value) { setenv("COC_FAIL", value, 1); }
  ~Fault() { unsetenv("COC_FAIL"); }
};

std::string layer(int l, const std::string& module) {
  return str("model.layers.", l, ".", module, ".weight");
}

// Shapes with whole blocks, with rows that end within a block, with an odd number of values, of one row, of one value.
const std::vector<std::vector<int64_t>> kShapes = {{64, 64}, {40, 96}, {33, 70}, {7, 5}, {1, 300}, {1, 1}};

std::map<std::string, MemoryTensor> some_matrices() {
  std::map<std::string, MemoryTensor> out;
  for (size_t k = 0; k < kShapes.size(); ++k)
    out[layer(static_cast<int>(k), "self_attn.q_proj")] = {
        kShapes[k], reference_values(kShapes[k][0] * kShapes[k][1], static_cast<uint32_t>(k + 3), 0.05f)};
  out["model.norm.weight"] = {{64}, reference_values(64, 9, 1)};
  out["model.embed_tokens.weight"] = {{40, 64}, reference_values(40 * 64, 10, 1)};
  return out;
}

// A folder with the same in another type.
void write_folder(const std::filesystem::path& folder, const std::map<std::string, MemoryTensor>& tensors,
                  const std::string& dtype) {
  std::filesystem::create_directories(folder);
  std::string header = "{", data;
  for (const auto& [name, t] : tensors) {
    const size_t begin = data.size();
    for (const float v : t.values) {
      if (dtype == "F32") data += raw(v);
      if (dtype == "BF16") data += raw(to_bf16(v).bits);
      if (dtype == "F16") data += raw(static_cast<uint16_t>(0x2000 | (std::bit_cast<uint32_t>(v) >> 16 & 0x83ff)));
    }
    header += str(header.size() > 1 ? "," : "", "\"", name, "\":{\"dtype\":\"", dtype,
                  "\",\"shape\":", shape_text(t.shape), ",\"data_offsets\":[", begin, ",", data.size(), "]}");
  }
  write_file(folder / "model.safetensors", safetensors_bytes(header + "}", data));
}

void check_equal(const Nf4Matrix& a, const Nf4Matrix& b) {
  CHECK(a.rows == b.rows);
  CHECK(a.cols == b.cols);
  const auto bytes = [](const Nf4Matrix& m) {
    return std::string(static_cast<const char*>(m.codes.view().data), m.codes.bytes());
  };
  CHECK(bytes(a) == bytes(b));
  CHECK(raw(a.absmax) == raw(b.absmax));
  CHECK(a.absmax_q == b.absmax_q);
  CHECK(raw(a.nested_absmax) == raw(b.nested_absmax));
  CHECK(raw(a.nested_offset) == raw(b.nested_offset));
}

// Calls `on_read` with the rows of each read.
class WatchedSource : public TensorSource {
 public:
  WatchedSource(const TensorSource& inner, std::function<void(int64_t first_row)> on_read)
      : inner_(inner), on_read_(std::move(on_read)) {}
  const std::vector<SourceTensor>& tensors() const override { return inner_.tensors(); }
  void read_rows(size_t i, int64_t r0, int64_t n, float* out) const override {
    on_read_(r0);
    inner_.read_rows(i, r0, n, out);
  }
  std::string fingerprint() const override { return inner_.fingerprint(); }

 private:
  const TensorSource& inner_;
  std::function<void(int64_t)> on_read_;
};

}  // namespace

TEST_CASE("a device gives the codes and the plain and nested scales of the host, from f32, bf16, f16 and GGUF") {
  const TempDir dir;
  std::vector<std::unique_ptr<TensorSource>> sources;
  sources.push_back(memory_source(some_matrices()));
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    write_folder(dir / dtype, some_matrices(), dtype);
    sources.push_back(open_model_files(dir / dtype));
  }
  CHECK(sources[2]->tensors()[0].natural == DType::bf16);
  GgufBuilder b;
  b.value_text("general.architecture", "llama");
  b.value_u32("llama.attention.head_count", 2);
  b.value_u32("llama.attention.head_count_kv", 2);
  std::string q8;
  for (const float scale : reference_values(64 * 64 / 32, 5, 0.01f)) {
    q8 += raw(static_cast<uint16_t>(0x2000 | (std::bit_cast<uint32_t>(scale) >> 16 & 0x83ff)));
    for (int i = 0; i < 32; ++i) q8 += static_cast<char>(q8.size() * 37 + 11);
  }
  b.tensor("blk.0.attn_q.weight", {64, 64}, 8, q8);
  write_file(dir / "m.gguf", b.bytes());
  sources.push_back(open_model_files(dir / "m.gguf"));

  Context ctx({.num_threads = 1, .backend = kDevice});
  for (size_t s = 0; s < sources.size(); ++s)
    for (const int threads : {1, 3})
      for (const bool nested : {false, true})
        for (const int64_t slab : {int64_t{1}, int64_t{1000}, kDeviceSlab}) {
          CAPTURE(s);
          CAPTURE(threads);
          CAPTURE(nested);
          CAPTURE(slab);
          Quantiser device(*sources[s], threads, &ctx, slab);
          ThreadPool pool(threads);
          for (size_t i = 0; i < sources[s]->tensors().size(); ++i)
            if (is_quantised_tensor(sources[s]->tensors()[i])) {
              CAPTURE(sources[s]->tensors()[i].name);
              check_equal(device.quantise(i, nested), nf4_quantise(*sources[s], i, nested, pool));
            }
        }
}

TEST_CASE("the files that a device makes are the host's, and the cache is one") {
  const TempDir dir;
  Context ctx({.num_threads = 1, .backend = kDevice});
  for (const char* dtype : {"F32", "BF16"})
    for (const bool nested : {false, true}) {
      CAPTURE(dtype);
      CAPTURE(nested);
      const auto folder = dir / str(dtype, nested);
      write_folder(folder, tiny_llama(), dtype);
      const auto source = open_model_files(folder);
      const QuantConfig quant{QuantType::nf4, nested};
      size_t held = 0;
      write_store(*source, quant, folder / "host");
      write_store(*source, quant, folder / "device",
                  {.device = &ctx, .progress = [&](const StoreProgress& p) { held = p.device_bytes; }});
      CHECK(held == quantise_device_bytes(*source));
      CHECK(read_file(folder / "device" / "model.safetensors") == read_file(folder / "host" / "model.safetensors"));

      const auto cached = cached_store(*source, quant, folder / "cache", {}, 1, &ctx);
      CHECK(store_is_cached(*source, quant, folder / "cache"));
      const auto entry = folder / "cache" / store_cache_key(*source, quant) / "model.safetensors";
      CHECK(read_file(entry) == read_file(folder / "host" / "model.safetensors"));
      bool built = false;
      const auto again = cached_store(*source, quant, folder / "cache", [&](const StoreProgress&) { built = true; });
      CHECK_FALSE(built);
      CHECK(again->names() == cached->names());
      CHECK_FALSE(store_is_cached(*source, {QuantType::none, false}, folder / "cache"));

      const auto memory = WeightStore::in_memory(*source, quant, &ctx), host = WeightStore::in_memory(*source, quant);
      const auto a = store_source(memory), b = store_source(host);
      for (size_t i = 0; i < a->tensors().size(); ++i) {
        const auto n = static_cast<size_t>(a->tensors()[i].rows() * a->tensors()[i].cols());
        std::vector<float> x(n), y(n);
        a->read_rows(i, 0, a->tensors()[i].rows(), x.data());
        b->read_rows(i, 0, b->tensors()[i].rows(), y.data());
        CHECK(raw(x) == raw(y));
      }
    }
}

TEST_CASE("two slabs of the device's memory are held, however large the model, and given back") {
  Context ctx({.num_threads = 1, .backend = kDevice});
  const auto use = [&] { return ctx.backend().memory_use(); };
  constexpr int64_t kSlab = 4096;
  size_t sizes[2];
  for (const int64_t rows : {100, 400}) {
    const auto source = memory_source(
        {{layer(0, "mlp.up_proj"), {{rows, 128}, reference_values(rows * 128, 1, 1)}},
         {layer(1, "mlp.up_proj"), {{rows, 128}, reference_values(rows * 128, 2, 1)}},
         {"lm_head.weight", {{rows * 9, 128}, reference_values(rows * 9 * 128, 3, 1)}}});  // as it is: not through here
    const MemoryUse before = use();
    {
      Quantiser q(*source, 1, &ctx, kSlab);
      const size_t bytes = quantise_device_bytes(*source, kSlab);
      // By hand: f32 values, half a byte of code each, a scale for each 64.
      CHECK(bytes == 2 * (kSlab * 4 + kSlab / 2 + kSlab / 64 * 4));
      CHECK(q.device_bytes() == bytes);
      CHECK(use().now == before.now + bytes);
      CHECK(use().pinned == before.pinned + bytes);
      q.quantise(1, true);
      q.quantise(2, true);
      CHECK(use().now == before.now + bytes);
      sizes[rows > 100] = bytes;
    }
    CHECK(use().now == before.now);
    CHECK(use().pinned == before.pinned);
  }
  CHECK(sizes[0] == sizes[1]);
  const auto tiny = memory_source({{layer(0, "mlp.up_proj"), {{2, 64}, reference_values(128, 1, 1)}}});
  CHECK(quantise_device_bytes(*tiny) == 2 * (512 + 256 + 256));  // no more than there is
  CHECK(quantise_device_bytes(*memory_source({{"lm_head.weight", {{1, 1}, {1.0f}}}})) == 0);
  CHECK(Quantiser(*tiny, 1, nullptr).device_bytes() == 0);
  Context cpu({.num_threads = 1});
  CHECK(Quantiser(*tiny, 1, &cpu).device_bytes() == 0);
}

TEST_CASE("emulation: the host decodes the next slab while the device has one, and waits when it has two") {
  const char* deferred = std::getenv("COC_DEFER");
  if (!deferred || *deferred != '1') return;  // otherwise the device is done before anybody could ask
  Context ctx({.num_threads = 1, .backend = kDevice});
  constexpr int64_t kRows = 60, kSlab = 640;  // six slabs of ten rows
  const auto source = memory_source({{layer(0, "mlp.up_proj"), {{kRows, 64}, reference_values(kRows * 64, 1, 1)}}});
  std::vector<std::pair<bool, bool>> done;  // when a slab is read: the one before it, and that before that
  const WatchedSource watched(*source, [&](int64_t row) {
    if (row % 10 != 0) return;
    const int k = static_cast<int>(row / 10);
    done.emplace_back(ctx.backend().reached(kMarkQuantise + (k + 1) % 2), ctx.backend().reached(kMarkQuantise + k % 2));
  });
  ThreadPool pool(1);
  check_equal(Quantiser(watched, 1, &ctx, kSlab).quantise(0, true), nf4_quantise(*source, 0, true, pool));
  REQUIRE(done.size() == 6);
  for (size_t k = 1; k < 6; ++k) {
    CAPTURE(k);
    CHECK_FALSE(done[k].first);
    CHECK(done[k].second);
  }
}

TEST_CASE("values that are not finite are named as on the host") {
  const TempDir dir;
  auto tensors = tiny_llama();
  tensors[layer(1, "mlp.up_proj")].values[130] = std::numeric_limits<float>::infinity();
  tensors[layer(1, "mlp.up_proj")].values[6000] = -std::numeric_limits<float>::quiet_NaN();
  Context ctx({.num_threads = 1, .backend = kDevice});
  for (const char* dtype : {"F32", "BF16"}) {
    write_folder(dir / dtype, tensors, dtype);
    const auto source = open_model_files(dir / dtype);
    const auto i = static_cast<size_t>(source->find(layer(1, "mlp.up_proj")));
    ThreadPool pool(1);
    const std::string want = error_of([&] { nf4_quantise(*source, i, true, pool); }, ErrorCode::numeric);
    CHECK(contains(want, "2 values are NaN or infinite, the first at index 130 (row 2, column 2)"));
    Quantiser device(*source, 2, &ctx, 640);
    CHECK(error_of([&] { device.quantise(i, true); }, ErrorCode::numeric) == want);
    check_equal(device.quantise(i - 1, true), nf4_quantise(*source, i - 1, true, pool));  // and goes on
  }
}

TEST_CASE("emulation: a device that fails is named with the tensor, and nothing is quantised elsewhere") {
  const TempDir dir;
  Context ctx({.num_threads = 1, .backend = kDevice});
  const auto inner = memory_source(tiny_llama());
  const std::string first = "quantising 'model.layers.0.mlp.down_proj.weight' on cuda_on_cpu:0: CUDA: ";
  for (const char* api : {"cudaLaunchKernel:9", "cudaMemcpyAsync:1", "cudaEventRecord:1", "cudaEventQuery:1"}) {
    CAPTURE(api);
    const auto error = [&] {
      const Fault fault(api);
      return error_of([&] { cached_store(*inner, {}, dir / "cache", {}, 1, &ctx); }, ErrorCode::device);
    }();
    CHECK_MESSAGE(contains(error, first), error);
  }
  int64_t reads = 0;
  const WatchedSource watched(*inner, [&](int64_t) { ++reads; });
  for (const auto& [api, words] :
       {std::pair{"cudaMalloc:2", "bytes for slabs of weights to quantise"},
        {"cudaMallocHost:2", "bytes of pinned host memory for slabs of weights to quantise"}}) {
    const Fault fault(api);
    const auto error =
        error_of([&] { cached_store(watched, {}, dir / "cache", {}, 1, &ctx); }, ErrorCode::does_not_fit);
    CHECK_MESSAGE(contains(error, words), error);
    CHECK(contains(error, "| free some, or quantise on the CPU (device: cpu), to the same bytes"));
  }
  CHECK(reads == 0);
  CHECK_FALSE(store_is_cached(*inner, {}, dir / "cache"));
  CHECK(cached_store(*inner, {}, dir / "cache", {}, 1, &ctx)->names().size() == inner->tensors().size());
}

TEST_CASE("what a tensor takes on a device is what the store there takes") {
  const TempDir dir;
  for (const char* dtype : {"F32", "BF16", "F16"})
    for (const QuantConfig& quant :
         {QuantConfig{QuantType::nf4, true}, QuantConfig{QuantType::nf4, false}, QuantConfig{QuantType::none, false}}) {
      write_folder(dir / dtype, tiny_llama(), dtype);
      const auto source = open_model_files(dir / dtype);
      size_t sum = 0;
      for (const SourceTensor& t : source->tensors()) sum += device_stored_bytes(t, quant);
      CHECK(sum == WeightStore::in_memory(*source, quant)->device_bytes());
    }
}
