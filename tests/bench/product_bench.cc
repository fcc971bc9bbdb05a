// SPDX-License-Identifier: Apache-2.0
// Speed of the CPU product on NF4 weights, forward (nt) and dX (nn), against this machine's measured arithmetic peak
// and oneDNN on dense, pre-packed weights: all three in one process, interleaved, because shared machines drift.
//   bantam_product_bench [--threads N] [--rounds N] [--only TEXT] [--isa scalar|avx2|avx512|avx512bf16]
// The peer takes the best instructions of the machine; ONEDNN_MAX_CPU_ISA (AVX2, AVX512_CORE, AVX512_CORE_BF16) makes
// it take the tier's.
// One thread is timed by its own CPU time, several by the wall clock; best and median of the rounds.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/product.h"
#include "peak.h"

#ifdef BANTAM_BENCH_ONEDNN
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#endif

using namespace bantam;

namespace {

int g_threads = 1, g_rounds = 7;

double now() {
  timespec t;
  clock_gettime(g_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Times {
  std::vector<double> seconds;
  double best() const { return *std::min_element(seconds.begin(), seconds.end()); }
  double median() const {
    std::vector<double> s = seconds;
    std::nth_element(s.begin(), s.begin() + static_cast<long>(s.size() / 2), s.end());
    return s[s.size() / 2];
  }
};

// ---- The peer

#ifdef BANTAM_BENCH_ONEDNN
class Peer {
 public:
  Peer(int64_t m, int64_t n, int64_t k, bool nn, bool half) {
    using namespace dnnl;
    const auto t = half ? memory::data_type::bf16 : memory::data_type::f32;
    const memory::desc src({m, k}, t, memory::format_tag::ab), dst({m, n}, t, memory::format_tag::ab);
    const memory::desc any({k, n}, t, memory::format_tag::any);
    const memory::desc plain({k, n}, t, nn ? memory::format_tag::ab : memory::format_tag::ba);
    const matmul::primitive_desc pd(matmul::desc(src, any, dst), engine_);
    impl_ = pd.impl_info_str();
    memory w(plain, engine_), packed(pd.weights_desc(), engine_);
    std::memset(w.get_data_handle(), 0, plain.get_size());
    reorder(w, packed).execute(stream_, w, packed);
    const memory s(src, engine_), d(dst, engine_);
    std::memset(s.get_data_handle(), 0, src.get_size());
    args_ = {{DNNL_ARG_SRC, s}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, d}};
    matmul_ = matmul(pd);
  }
  void run() {
    matmul_.execute(stream_, args_);
    stream_.wait();
  }
  const std::string& impl() const { return impl_; }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> args_;
  std::string impl_;
};
#endif

struct Shape {
  int64_t out, in;  // of the stored weight
};

void bench(Context& ctx, Shape s, int64_t m, bool dx, const char* only) {
  const std::string label = std::string(dx ? "dx  " : "fwd ") + std::to_string(s.out) + "x" + std::to_string(s.in) +
                            " M=" + std::to_string(m);
  if (only && label.find(only) == std::string::npos) return;
  const int64_t n = dx ? s.in : s.out, k = dx ? s.out : s.in;
  std::mt19937 random(1);
  std::vector<uint8_t> codes(static_cast<size_t>(s.out * s.in / 2));
  for (auto& c : codes) c = static_cast<uint8_t>(random());
  const std::vector<float> absmax(static_cast<size_t>(s.out * s.in / 64 + 1), 0.05f);
  Tensor a(DType::bf16, m, k), c(DType::bf16, m, n);
  for (int64_t i = 0; i < m * k; ++i) a.data<bf16>()[i] = to_bf16(static_cast<float>(random() % 2001) / 1000.0f - 1);
  ProductArgs p;
  p.terms[0].a = a;
  WeightView& w = p.terms[0].b;
  w.format = WeightFormat::nf4;
  w.rows = s.out, w.cols = w.stride = s.in, w.data = codes.data(), w.absmax = absmax.data();
  p.terms[0].layout = dx ? BLayout::nn : BLayout::nt;
  p.c = c;
  p.math = Math::bf16;

  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int repeats = std::max(1, static_cast<int>(1e9 / flops));
  Times ours, peer, peak;
  const auto time = [&](Times& t, int times, const std::function<void()>& f) {
    const double start = now();
    for (int i = 0; i < times; ++i) f();
    t.seconds.push_back((now() - start) / times);
  };
  const Peak peak_run = peak_of(ctx.isa());
  double peak_flops = 0;
#ifdef BANTAM_BENCH_ONEDNN
  Peer dnnl(m, n, k, dx, ctx.isa() == Isa::avx512bf16);
  dnnl.run();
#endif
  product(ctx, p);
  for (int r = 0; r < g_rounds; ++r) {
    if (peak_run) {
      time(peak, 1, [&] {
        ctx.pool().run([&](int thread) {
          const double done = peak_run(1'000'000);
          if (thread == 0) peak_flops = done * g_threads;
        });
      });
    }
    time(ours, repeats, [&] { product(ctx, p); });
#ifdef BANTAM_BENCH_ONEDNN
    time(peer, repeats, [&] { dnnl.run(); });
#endif
  }
  std::printf("%-26s", label.c_str());
  std::printf(" ours %7.1f best %7.1f median GFLOP/s", flops / ours.best() * 1e-9, flops / ours.median() * 1e-9);
  if (peak_run)
    std::printf("  %5.1f %% / %5.1f %% of peak %.1f", 100 * flops / ours.best() / (peak_flops / peak.best()),
                100 * flops / ours.median() / (peak_flops / peak.median()), peak_flops / peak.best() * 1e-9);
#ifdef BANTAM_BENCH_ONEDNN
  std::printf("  oneDNN %7.1f  ratio %.2f / %.2f  (%s)", flops / peer.best() * 1e-9, peer.best() / ours.best(),
              peer.median() / ours.median(), dnnl.impl().c_str());
#endif
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const char* only = nullptr;
  ContextOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--threads")) g_threads = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--rounds")) g_rounds = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--only")) only = argv[i + 1];
    if (!std::strcmp(argv[i], "--isa"))
      for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512bf16})
        if (!std::strcmp(argv[i + 1], name_of(isa))) options.isa = isa;
  }
#ifdef BANTAM_BENCH_ONEDNN
  omp_set_num_threads(g_threads);
#endif
  options.num_threads = g_threads;
  Context ctx(options);
  std::printf("tier %s, %d thread(s), %d rounds; NF4 weights, bf16 activations\n", name_of(ctx.isa()), g_threads,
              g_rounds);
  const Shape shapes[] = {{576, 576}, {1536, 576}, {576, 1536}, {192, 576}, {2048, 2048}, {4096, 4096}};
  for (const Shape s : shapes)
    for (const int64_t m : {128, 512, 2048})
      for (const bool dx : {false, true}) bench(ctx, s, m, dx, only);
}
