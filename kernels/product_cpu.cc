// SPDX-License-Identifier: Apache-2.0
// The driver of the CPU product: how the work is cut, never what an element is. Each thread packs a group of columns of
// one reduction slice so that it stays in its L2 cache, then passes blocks of rows over it.
#include <algorithm>

#include "cpu_ops.h"
#include "product_tile.h"

namespace bantam::cpu {

namespace {

constexpr int64_t kRowBlock = 48;   // rows packed at a time; a multiple of every micro-tile's rows
constexpr int64_t kMaxRows = 1024;  // rows of f32 sums held while the slices pass

/// Bytes of packed b: what stays in L2 (512 KiB on AVX2 machines, 1 MiB and more with AVX-512) beside rows of a and c.
size_t packed_b(const TileEngine& e) {
  return size_t{e.nr >= 64 ? 704u : 336u} << 10;
}

/// Columns and rows of one task; tasks are numbered rows first within a column group.
struct Cut {
  int64_t cols = 0, rows = 0, col_groups = 0, row_parts = 0;
};

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t reduction_of(const ProductTerm& t) {
  return t.layout == BLayout::nt ? t.b.cols : t.b.rows;
}

int64_t longest_slice(const TileEngine& e, const ProductArgs& p) {
  int64_t kc = 8;
  for (int t = 0; t < p.num_terms; ++t) {
    const int64_t k = reduction_of(p.terms[t]);
    kc = std::max(kc, std::min(k, reduction_slice(e, p.math, k)));
  }
  return kc;
}

/// Columns first, since each group of columns is packed once; rows too where there are too few columns.
Cut cut(const TileEngine& e, Math math, int64_t m, int64_t n, int64_t kc, int threads) {
  const int64_t panels = ceil_div(n, e.nr), blocks = ceil_div(m, kRowBlock);
  const int64_t fit = std::max<int64_t>(1, static_cast<int64_t>(packed_b(e) / e.b_bytes(math, e.nr, kc)));
  const int64_t least_groups = ceil_div(panels, fit);
  Cut best;
  double best_cost = 0;
  for (int64_t parts = 1; parts <= std::min<int64_t>(threads, blocks); ++parts) {
    // Whole rounds of tasks over the threads where the columns allow it.
    int64_t groups = least_groups;
    while (groups < panels && groups * parts % threads != 0) ++groups;
    const int64_t cols = ceil_div(panels, groups) * e.nr, rows = ceil_div(blocks, parts) * kRowBlock;
    groups = ceil_div(n, cols);
    const double c = static_cast<double>(cols), r = static_cast<double>(std::min(rows, m));
    // Cycles per k of a task: multiply, decode and pack b, pack a; measured to a factor of two, which is enough here.
    const double task = c * r / 16 + c * 0.75 * static_cast<double>(ceil_div(rows, kMaxRows)) + r * 0.15;
    const double cost = task * static_cast<double>(ceil_div(groups * ceil_div(m, rows), threads));
    if (best.cols == 0 || cost < best_cost * 0.98) best = {cols, rows, groups, ceil_div(m, rows)}, best_cost = cost;
    if (parts >= 64) break;
  }
  return best;
}

/// One task: rows [m0, m0 + m) of columns [c0, c0 + n).
void run_task(const TileEngine& e, const ProductArgs& p, int64_t kc_max, int64_t c0, int64_t n, int64_t m0, int64_t m,
              char* scratch) {
  char* const b = scratch;
  char* const a = b + e.b_bytes(p.math, n, kc_max);
  float* const sums = reinterpret_cast<float*>(a + (e.a_bytes(p.math, kRowBlock, kc_max) + 63) / 64 * 64);
  const int64_t sums_ld = ceil_div(n, 16) * 16;
  const int64_t room = (scratch + Context::kThreadScratch - reinterpret_cast<char*>(sums)) /
                       static_cast<int64_t>(sizeof(float)) / sums_ld;
  const int64_t most_rows = std::min(kMaxRows, room / kRowBlock * kRowBlock);
  // Where c can hold the sums, it does.
  const bool direct = p.c.dtype == DType::f32 && p.mode == GradMode::write && p.alpha == 1.0f && !p.bias && !p.residual;

  int64_t passes = 0;
  for (int t = 0; t < p.num_terms; ++t) {
    const int64_t k = reduction_of(p.terms[t]);
    passes += ceil_div(k, reduction_slice(e, p.math, k));
  }
  const size_t c_size = size_of(p.c.dtype);
  TileFinish end;
  end.cols = n;
  end.sum_stride = sums_ld;
  end.alpha = p.alpha;
  end.bias = p.bias ? p.bias + c0 : nullptr;
  end.c_is_bf16 = p.c.dtype == DType::bf16;
  end.c_stride = p.c.stride;
  end.add = p.mode == GradMode::add;
  const auto finish = [&](int64_t row, int64_t rows, const float* sum) {
    end.rows = rows;
    end.sum = sum;
    if (p.residual) end.residual = p.residual.row_range(row, rows).columns(c0, n);
    end.c = static_cast<char*>(p.c.data) + static_cast<size_t>(row * p.c.stride + c0) * c_size;
    e.finish(end);
  };

  for (int64_t r0 = m0; r0 < m0 + m; r0 += most_rows) {
    const int64_t rows = std::min(most_rows, m0 + m - r0);
    float* const base = direct ? static_cast<float*>(p.c.data) + r0 * p.c.stride + c0 : sums;
    const int64_t ld = direct ? p.c.stride : sums_ld;
    if (passes == 0) {  // nothing to sum
      for (int64_t i = 0; i < rows; ++i) std::fill_n(base + i * ld, n, 0.0f);
      if (!direct) finish(r0, rows, sums);
    }
    int64_t pass = 0;
    for (int t = 0; t < p.num_terms; ++t) {
      const ProductTerm& term = p.terms[t];
      const int64_t k = reduction_of(term), slice = reduction_slice(e, p.math, k);
      for (int64_t k0 = 0; k0 < k; k0 += slice, ++pass) {
        const int64_t kc = std::min(slice, k - k0);
        const bool last = pass + 1 == passes;
        e.pack_b(p.math, term.b, term.layout, c0, n, k0, kc, b);
        for (int64_t i = 0; i < rows; i += kRowBlock) {
          const int64_t here = std::min(kRowBlock, rows - i);
          // A product of one pass needs the sums of one block only.
          float* const to = !direct && passes == 1 ? sums : base + i * ld;
          e.pack_a(p.math, term.a, term.a_transposed, r0 + i, here, k0, kc, a);
          e.multiply(p.math, here, n, kc, a, b, to, ld, pass > 0);
          if (last && !direct) finish(r0 + i, here, to);
        }
      }
    }
  }
}

}  // namespace

void product(Context& ctx, const ProductArgs& args) {
  const TileEngine& e = tile_engine(ctx.isa());
  const int64_t m = args.c.rows, n = args.c.cols, kc = longest_slice(e, args);
  // Waking threads costs more than a very small product.
  const bool small = m * n <= 16384 && m * n * kc <= 65536;
  const Cut c = cut(e, args.math, m, n, kc, small ? 1 : ctx.num_threads());
  parallel_for(ctx, c.col_groups * c.row_parts, 1, [&](int64_t task, int64_t, int thread) {
    const int64_t c0 = task / c.row_parts * c.cols, m0 = task % c.row_parts * c.rows;
    run_task(e, args, kc, c0, std::min(c.cols, n - c0), m0, std::min(c.rows, m - m0),
             static_cast<char*>(ctx.scratch(thread)));
  });
}

void products(Context& ctx, const ProductsArgs& args) {
  for (const ProductArgs& p : args.list)
    if (p.c.rows > 0 && p.c.cols > 0) cpu::product(ctx, p);
}

}  // namespace bantam::cpu
