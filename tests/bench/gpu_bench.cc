// SPDX-License-Identifier: Apache-2.0
// Speed and memory of a backend with a device of its own, as shares of what the same process measures for a large
// square product. tests/bench/gpu.sh builds and runs it.
//   bantam_gpu_bench [--backend NAME|PATH] [--tiny] [--limit SECONDS] [--only SECTION] [--layers N]
// The backend is `cuda` by default. --tiny: small shapes, each once, for a smoke test on an emulated device. Every
// section has a time limit, --limit is that of the whole (240). Exit: 0, 1 when a section failed, 77 without a GPU.
#include "gpu_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "kernels/backend.h"
#include "kernels/error.h"

namespace bantam::gpu_bench {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}
std::string percent(double share) {
  return format("%.1f %%", 100 * share);
}

// A backend's table says nothing of its device's memory: then only what is planned is printed.
Bench::Bench(Context& c, bool t, double limit_seconds) : ctx(c), tiny(t), end_(now() + limit_seconds) {}

void Bench::section(const std::string& title, double limit, const std::function<void()>& body) {
  std::printf("\n== %s\n", title.c_str());
  section_end_ = std::min(end_, now() + limit);
  if (late("the section")) return;
  try {
    body();
    wait();
  } catch (const Error& e) {
    std::printf("failed: %s\n", e.what());
    row(title, "failed", e.what());
    failed_ = true;
  }
  std::fflush(stdout);
}

bool Bench::late(const std::string& what) {
  if (now() < section_end_) return false;
  std::printf("time limit: %s left out\n", what.c_str());
  return true;
}

// Downloads come after all that was asked before them, and are finished on return.
void Bench::wait() {
  if (ctx.backend().synchronize) ctx.backend().synchronize();
}

double Bench::seconds_of(const std::function<void()>& f) {
  const double t0 = now();
  f();
  wait();
  if (tiny) return now() - t0;
  const double t1 = now();
  f();
  wait();
  const double once = now() - t1;
  // Batches long enough that waiting for the device does not count.
  const int batch = std::clamp(static_cast<int>(0.05 / std::max(once, 1e-6)), 1, 2000);
  double best = once;
  for (int round = 0; round < 5 && now() < section_end_; ++round) {
    const double start = now();
    for (int i = 0; i < batch; ++i) f();
    wait();
    best = std::min(best, (now() - start) / batch);
  }
  return best;
}

void Bench::row(const std::string& name, const std::string& figure, const std::string& ratio) {
  rows_.push_back({name, figure, ratio});
  std::printf("%-36s %18s   %s\n", name.c_str(), figure.c_str(), ratio.c_str());
  std::fflush(stdout);
}
void Bench::rate_row(const std::string& name, double flops, double seconds) {
  row(name, format("%.1f TFLOP/s", flops / seconds * 1e-12),
      rate > 0 ? percent(flops / seconds / rate) + " of the product rate" : "");
}
void Bench::print_table() const {
  std::printf("\n== Summary%s\n", tiny ? " (tiny shapes: the figures mean nothing)" : "");
  for (const Row& r : rows_) std::printf("%-36s %18s   %s\n", r.name.c_str(), r.figure.c_str(), r.ratio.c_str());
}

Matrix::Matrix(Bench& b, DType dtype, int64_t rows, int64_t cols, float scale)
    : buffer_(b.ctx.backend(), static_cast<size_t>(rows * cols) * size_of(dtype), "a matrix"),
      dtype_(dtype),
      rows_(rows),
      cols_(cols) {
  if (scale == 0) return;
  const int64_t n = rows * cols, block = std::min<int64_t>(n, 1 << 20);  // repeated: the device does not notice
  std::mt19937 bits(static_cast<unsigned>(rows * 31 + cols));
  with_float_type(dtype, [&]<class T>() {
    std::vector<T> values(static_cast<size_t>(block));
    for (T& v : values) v = from_f32<T>(scale * (static_cast<float>(bits() >> 8) * 0x1p-23f - 1.0f));
    for (int64_t i = 0; i < n; i += block)
      b.ctx.backend().upload(static_cast<T*>(buffer_.data()) + i, values.data(),
                             static_cast<size_t>(std::min(block, n - i)) * sizeof(T));
  });
}

Nf4Weight::Nf4Weight(Bench& b, int64_t rows, int64_t cols) {
  const int64_t n = rows * cols, blocks = (n + WeightView::kBlock - 1) / WeightView::kBlock;
  const int64_t nested = (blocks + WeightView::kNestedBlock - 1) / WeightView::kNestedBlock;
  std::mt19937 bits(static_cast<unsigned>(rows * 31 + cols));
  const auto bytes = [&](DeviceBuffer& to, size_t count) {
    std::vector<uint8_t> v(count);
    for (size_t i = 0; i < count; i += 4) {
      const uint32_t word = static_cast<uint32_t>(bits());
      std::memcpy(&v[i], &word, std::min<size_t>(4, count - i));
    }
    to = DeviceBuffer(b.ctx.backend(), count, "codes");
    to.upload(v.data(), count);
    stored_bytes_ += count;
  };
  const auto floats = [&](DeviceBuffer& to, const std::vector<float>& v) {
    to = DeviceBuffer(b.ctx.backend(), v.size() * sizeof(float), "scales");
    to.upload(v.data(), v.size() * sizeof(float));
    stored_bytes_ += v.size() * sizeof(float);
  };
  bytes(codes_, static_cast<size_t>((n + 1) / 2));
  bytes(absmax_q_, static_cast<size_t>(blocks));
  floats(nested_absmax_, std::vector<float>(static_cast<size_t>(nested), 0.01f));
  std::vector<float> code(256);
  for (size_t i = 0; i < code.size(); ++i) code[i] = (static_cast<float>(i) - 127.5f) / 127.5f;
  floats(nested_code_, code);
  view_.format = WeightFormat::nf4;
  view_.rows = rows;
  view_.cols = view_.stride = cols;
  view_.data = codes_.data();
  view_.absmax_q = static_cast<const uint8_t*>(absmax_q_.data());
  view_.nested_absmax = static_cast<const float*>(nested_absmax_.data());
  view_.nested_code = static_cast<const float*>(nested_code_.data());
  view_.nested_offset = 0.02f;
}

std::vector<LinearShape> linears(const Bench& b) {
  if (b.tiny) return {{"q_proj o_proj", 64, 64}, {"down_proj", 64, 96}};
  return {{"q_proj o_proj", 4096, 4096},
          {"k_proj v_proj", 1024, 4096},
          {"gate_proj up_proj", 14336, 4096},
          {"down_proj", 4096, 14336}};
}

}  // namespace bantam::gpu_bench

int main(int argc, char** argv) {
  using namespace bantam;
  using namespace bantam::gpu_bench;
  std::string backend = "cuda", only;
  bool tiny = false;
  double limit = 240;
  int64_t layers = 0;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (!std::strcmp(argv[i], "--backend"))
      backend = value();
    else if (!std::strcmp(argv[i], "--tiny"))
      tiny = true;
    else if (!std::strcmp(argv[i], "--limit"))
      limit = std::atof(value());
    else if (!std::strcmp(argv[i], "--only"))
      only = value();
    else if (!std::strcmp(argv[i], "--layers"))
      layers = std::atoll(value());
    else {
      std::fprintf(stderr, "unknown argument '%s'; see the head of tests/bench/gpu_bench.cc\n", argv[i]);
      return 2;
    }
  }
  try {
    load_backend(backend);
  } catch (const Error& e) {
    const bool no_device = std::string(e.what()).starts_with("no usable CUDA device");
    std::printf("%s%s\n", no_device ? "no GPU: nothing measured: " : "", e.what());
    return no_device ? 77 : 1;
  }
  Context ctx({.backend = backend});
  Bench b(ctx, tiny, limit);
  std::printf("backend %s\n", ctx.backend().name);
  struct Section {
    const char *name, *title;
    double limit;
    std::function<void()> run;
  };
  const Section sections[] = {
      {"rate", "Large square product, bf16: the rate that shares are of", 15, [&] { product_rate(b); }},
      {"nf4", "NF4 decoding", 15, [&] { nf4_decoding(b); }},
      {"products", "Products of an 8B model on NF4 weights", 25, [&] { products(b); }},
      {"attention", "Attention", 25, [&] { attention_rates(b); }},
      {"loss", "Loss", 30, [&] { loss_rates(b); }},
      {"step", "Whole steps of an 8B Llama, NF4, r = 16", 120, [&] { whole_steps(b, layers); }},
      {"lora", "LoRA's share, r = 16", 20, [&] { lora_share(b); }},
  };
  if (!only.empty() &&
      std::none_of(std::begin(sections), std::end(sections), [&](auto& s) { return only == s.name; })) {
    std::fprintf(stderr, "no section '%s'\n", only.c_str());
    return 2;
  }
  for (const Section& s : sections)
    if (only.empty() || only == s.name || !std::strcmp(s.name, "rate")) b.section(s.title, s.limit, s.run);
  b.print_table();
  return b.failed() ? 1 : 0;
}
