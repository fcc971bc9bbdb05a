// SPDX-License-Identifier: Apache-2.0
// Sections of bantam_gpu_bench: single ops.
#include <cmath>
#include <random>

#include "gpu_bench.h"
#include "kernels/attention.h"
#include "kernels/copy.h"
#include "kernels/cross_entropy.h"
#include "kernels/error.h"
#include "kernels/product.h"

namespace bantam::gpu_bench {

namespace {

int64_t tokens(const Bench& b) {
  return b.tiny ? 32 : 8192;
}
double flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}
// c = a b^T or a b, with bf16 operands.
ProductArgs product_of(const ConstTensorView& a, const WeightView& b, BLayout layout, const TensorView& c) {
  ProductArgs p;
  p.terms[0] = {.a = a, .b = b, .layout = layout};
  p.c = c;
  p.math = Math::bf16;
  return p;
}
std::string gigabytes(double bytes_per_second) {
  return format("%.0f GB/s", bytes_per_second * 1e-9);
}

}  // namespace

void product_rate(Bench& b) {
  const int64_t n = b.tiny ? 64 : 8192;
  const Matrix a(b, DType::bf16, n, n, 1), w(b, DType::bf16, n, n, 1), c(b, DType::bf16, n, n);
  const ProductArgs p = product_of(a, ConstTensorView(w), BLayout::nt, c);
  const double s = b.seconds_of([&] { product(b.ctx, p); });
  b.rate = flops(n, n, n) / s;
  b.row(str("product ", n, "^3"), format("%.1f TFLOP/s", b.rate * 1e-12), "the product rate");
}

// The time that a product takes longer on an NF4 weight than on the same shape in bf16, against a copy that reads and
// writes as many bytes. Several weights in turn, so that none is still decoded, or in the cache, from the last time.
void nf4_decoding(Bench& b) {
  constexpr int kWeights = 4;
  const int64_t out = b.tiny ? 64 : 14336, in = b.tiny ? 64 : 4096, m = b.tiny ? 16 : 256;
  const Matrix x(b, DType::bf16, m, in, 1), y(b, DType::bf16, m, out);
  std::vector<Nf4Weight> coded;
  std::vector<Matrix> dense;
  for (int i = 0; i < kWeights; ++i) {
    coded.emplace_back(b, out, in);
    dense.emplace_back(b, DType::bf16, out, in, 0.02f);
  }
  int turn = 0;
  const auto next = [&] { return static_cast<size_t>(turn++ % kWeights); };
  const double with_decoding =
      b.seconds_of([&] { product(b.ctx, product_of(x, WeightView(coded[next()]), BLayout::nt, y)); });
  const double without =
      b.seconds_of([&] { product(b.ctx, product_of(x, ConstTensorView(dense[next()]), BLayout::nt, y)); });
  const double bytes = static_cast<double>(coded[0].stored_bytes()) + 2.0 * static_cast<double>(out * in);
  const int64_t copied = static_cast<int64_t>(bytes) / 4 / in;  // rows of bf16, read and written
  const Matrix from(b, DType::bf16, copied, in, 1), to(b, DType::bf16, copied, in);
  const double copy_seconds = b.seconds_of([&] { copy(b.ctx, {.x = from, .y = to}); });
  b.row("copy of equal bytes", gigabytes(bytes / copy_seconds), "");
  const double decoding = with_decoding - without;
  if (decoding <= 0)
    b.row("NF4 decoding", "hidden", "an NF4 product takes no longer than a bf16 one");
  else
    b.row("NF4 decoding", gigabytes(bytes / decoding), percent(copy_seconds / decoding) + " of the copy's bandwidth");
}

void products(Bench& b) {
  const int64_t t = tokens(b);
  for (const LinearShape& l : linears(b)) {
    if (b.late(l.name)) return;
    const Matrix x(b, DType::bf16, t, l.in, 1), y(b, DType::bf16, t, l.out, 1);
    const Nf4Weight w(b, l.out, l.in);
    const ProductArgs forward = product_of(x, w, BLayout::nt, y), back = product_of(y, w, BLayout::nn, x);
    b.rate_row(str(l.name, " forward"), flops(t, l.out, l.in), b.seconds_of([&] { product(b.ctx, forward); }));
    b.rate_row(str(l.name, " dx"), flops(t, l.out, l.in), b.seconds_of([&] { product(b.ctx, back); }));
  }
}

// Counted: what the mask leaves, two products forward and five backward, however often a kernel runs them.
void attention_rates(Bench& b) {
  const int64_t length = b.tiny ? 16 : 2048, heads = b.tiny ? 2 : 32, kv_heads = b.tiny ? 1 : 8, t = tokens(b);
  for (const int64_t d : {int64_t{128}, int64_t{64}}) {
    if (b.late(str("head_dim ", d))) return;
    std::vector<int32_t> cu;
    for (int64_t i = 0; i <= t; i += length) cu.push_back(static_cast<int32_t>(i));
    const AttentionShape shape{
        cu.data(), cu.data(), t / length, heads, kv_heads, d, 1.0f / std::sqrt(static_cast<float>(d))};
    const Matrix q(b, DType::bf16, t, heads * d, 1), k(b, DType::bf16, t, kv_heads * d, 1);
    const Matrix v(b, DType::bf16, t, kv_heads * d, 1), dout(b, DType::bf16, t, heads * d, 1);
    const Matrix o(b, DType::bf16, t, heads * d), lse(b, DType::f32, t, heads), delta(b, DType::f32, t, heads);
    const Matrix dq(b, DType::bf16, t, heads * d), dk(b, DType::bf16, t, kv_heads * d);
    const Matrix dv(b, DType::bf16, t, kv_heads * d);
    const double one = flops(t, length, heads * d) / 2;  // one product, half of the square
    const std::string name = str("attention d ", d, ", T ", length);
    b.rate_row(name + " forward", 2 * one, b.seconds_of([&] {
      attention(b.ctx, {shape, q, k, v, o, lse, Math::bf16});
    }));
    b.rate_row(name + " backward", 5 * one, b.seconds_of([&] {
      attention_backward(b.ctx, {shape, q, k, v, o, lse, dout, delta, dq, dk, dv, Math::bf16});
    }));
  }
}

void loss_rates(Bench& b) {
  const int64_t t = tokens(b), c = b.tiny ? 64 : 4096;
  for (const int64_t vocab : {int64_t{128256}, int64_t{248320}}) {
    const int64_t v = b.tiny ? vocab / 1000 : vocab;
    if (b.late(str("vocabulary ", v))) return;
    const Matrix hidden(b, DType::bf16, t, c, 1), head(b, DType::bf16, v, c, 0.02f), dhidden(b, DType::f32, t, c);
    const Matrix loss(b, DType::f32, 1, t);
    std::vector<int32_t> labels(static_cast<size_t>(t));
    std::mt19937 bits(1);
    for (auto& l : labels) l = static_cast<int32_t>(bits() % static_cast<unsigned>(v));
    const size_t bytes = cross_entropy_scratch(cross_entropy_chunk_rows(size_t{128} << 20, t, c, v), c, v);
    const DeviceBuffer scratch(b.ctx.backend(), bytes, "the loss");
    const double s = b.seconds_of([&] {
      chunked_cross_entropy(b.ctx, {.hidden = hidden,
                                    .labels = labels.data(),
                                    .head = ConstTensorView(head),
                                    .math = Math::bf16,
                                    .loss = loss.f32(),
                                    .dhidden = dhidden,
                                    .scratch = scratch.data(),
                                    .scratch_bytes = bytes});
    });
    const std::string name = str("loss V ", v);
    b.row(name, format("%.0f tokens/s", static_cast<double>(t) / s),
          percent(2 * flops(t, v, c) / s / b.rate) + " of the product rate");
    b.row(name + " scratch", format("%.1f MiB", static_cast<double>(bytes) / (1 << 20)),
          percent(static_cast<double>(bytes) / (4.0 * static_cast<double>(t) * static_cast<double>(v))) +
              " of all logits in f32");
  }
}

// What a linear layer with an adapter takes longer than one without, forward and backward as training runs them.
void lora_share(Bench& b) {
  const int64_t t = tokens(b), r = 16;
  double plain = 0, more = 0;
  for (const LinearShape& l : linears(b)) {
    if (b.late(l.name)) return;
    const int count = std::string(l.name).find(' ') == std::string::npos ? 1 : 2;
    const Matrix x(b, DType::bf16, t, l.in, 1), y(b, DType::bf16, t, l.out, 1), dx(b, DType::bf16, t, l.in);
    const Matrix z(b, DType::bf16, t, r), dz(b, DType::bf16, t, r);
    const Matrix lora_a(b, DType::f32, r, l.in, 0.1f), lora_b(b, DType::f32, l.out, r, 0.1f);
    const Matrix da(b, DType::f32, r, l.in, 0.1f), db(b, DType::f32, l.out, r, 0.1f);
    const Nf4Weight w(b, l.out, l.in);
    const ProductArgs forward = product_of(x, w, BLayout::nt, y), back = product_of(y, w, BLayout::nn, dx);
    ProductArgs forward2 = forward, back2 = back;
    forward2.terms[forward2.num_terms++] = {.a = z, .b = ConstTensorView(lora_b)};
    back2.terms[back2.num_terms++] = {.a = dz, .b = ConstTensorView(lora_a), .layout = BLayout::nn};
    const auto transposed = [](const ConstTensorView& a, const ConstTensorView& right, const TensorView& sum) {
      ProductArgs p = product_of(a, right, BLayout::nn, sum);
      p.terms[0].a_transposed = true;
      p.mode = GradMode::add;
      return p;
    };
    const ProductArgs down = product_of(x, ConstTensorView(lora_a), BLayout::nt, z);
    const ProductArgs down_back = product_of(y, ConstTensorView(lora_b), BLayout::nn, dz);
    const ProductArgs grad_a = transposed(dz, x, da), grad_b = transposed(y, z, db);
    product(b.ctx, down);
    const double without = b.seconds_of([&] {
      product(b.ctx, forward);
      product(b.ctx, back);
    });
    const double with = b.seconds_of([&] {
      for (const ProductArgs* p :
           std::initializer_list<const ProductArgs*>{&down, &forward2, &grad_b, &down_back, &back2, &grad_a})
        product(b.ctx, *p);
    });
    b.row(str(l.name, " + LoRA"), format("%+.3f ms", 1e3 * (with - without)),
          percent((with - without) / without) + " of forward and dx");
    plain += count * without;
    more += count * (with - without);
  }
  b.row("LoRA, one layer", format("%.3f ms", 1e3 * more), percent(more / plain) + " of its forward and dx");
  constexpr int kLayers = 32;
  if (b.step_seconds > 0)
    b.row("LoRA, 32 layers", format("%.1f ms", 1e3 * kLayers * more),
          percent(kLayers * more / b.step_seconds) + " of a step");
}

}  // namespace bantam::gpu_bench
