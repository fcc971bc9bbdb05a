// SPDX-License-Identifier: Apache-2.0
// Backward of the CPU attention in two passes over the scores, no value written by two tasks. With
//   p = exp(score - lse),  ds = p * (dout v^T - delta) * slope of the softcap:
// pass 1, columns are queries: dq = scale * ds k, over tiles of keys in order;
// pass 2, columns are keys:    dv = p^T dout, dk = scale * ds^T q, over the group's heads and tiles of queries in
// order.
#include "attention.h"
#include "attention_tiles.h"
#include "cpu_ops.h"

namespace bantam::cpu {

namespace {

// A packed column panel of two operands and one or two [d][width] sums beside it.
struct PanelLayout {
  size_t operand_bytes, sum_bytes, bytes;
  PanelLayout(const TileEngine& engine, Math math, int64_t width, int64_t d, int64_t floats_per_column) {
    operand_bytes = (engine.b_bytes(math, width, d) + 63) / 64 * 64;
    sum_bytes = static_cast<size_t>(width * floats_per_column) * 4;
    bytes = (2 * operand_bytes + sum_bytes + 63) / 64 * 64;
  }
};

class QueryPass {
 public:
  QueryPass(const TileEngine& engine, const AttentionTiles& tiles, const AttentionBackwardArgs& args, void* scratch)
      : engine_(engine),
        tiles_(tiles),
        args_(args),
        d_(args.shape.head_dim),
        cursor_(scratch),
        layout_(engine, args.math, tiles.width, d_, d_ + 2) {
    const size_t tile = engine.a_bytes(args.math, tiles.keys, d_);
    keys_ = cursor_.take(tile);
    values_ = cursor_.take(tile);
    keys_t_ = cursor_.take(engine.a_bytes(args.math, d_, tiles.keys));
    scores_ = cursor_.floats(tiles.keys * tiles.width);
    products_ = cursor_.floats(tiles.keys * tiles.width);
    packed_ = cursor_.take(engine.b_bytes(args.math, tiles.width, tiles.keys));
    factor_ = cursor_.floats(tiles.width);
    std::fill_n(factor_, tiles.width, args.shape.scale);
  }

  int64_t most_heads() const {
    return static_cast<int64_t>(cursor_.left() / layout_.bytes) / (tiles_.columns / tiles_.width);
  }

  void run(const SequenceBlock& block, int64_t kv_head, int64_t head, int64_t heads) {
    const int64_t start = args_.shape.cu_q[block.seq], width = tiles_.width, seen = block.first + block.count;
    const int64_t first_seen = std::max<int64_t>(0, block.first + 1 - window_of(args_.shape));
    const int64_t per_head = (block.count + width - 1) / width, panels = heads * per_head;
    states_ = static_cast<char*>(ScratchCursor(cursor_).take(static_cast<size_t>(panels) * layout_.bytes));
    const auto each = [&](auto f) {
      for (int64_t i = 0; i < panels; ++i) {
        const int64_t first = i % per_head * width;
        f(i, head + i / per_head, block.first + first, std::min(width, block.count - first));
      }
    };
    each([&](int64_t i, int64_t h, int64_t first, int64_t count) { open(state(i), h, start + first, count); });
    const ConstTensorView k = args_.k.columns(kv_head * d_, d_), v = args_.v.columns(kv_head * d_, d_);
    for (int64_t k0 = first_seen / tiles_.keys * tiles_.keys; k0 < seen; k0 += tiles_.keys) {
      const int64_t keys = std::min(tiles_.keys, seen - k0);
      engine_.pack_a(args_.math, k, false, start + k0, keys, 0, d_, keys_);
      engine_.pack_a(args_.math, v, false, start + k0, keys, 0, d_, values_);
      engine_.pack_a(args_.math, k, true, 0, d_, start + k0, keys, keys_t_);
      each([&](int64_t i, int64_t, int64_t first, int64_t count) { step(state(i), first - k0, count, keys); });
    }
    each([&](int64_t i, int64_t h, int64_t first, int64_t count) {
      store_columns(state(i).dq, d_, width, count, factor_,
                    args_.dq.columns(h * d_, d_).row_range(start + first, count));
    });
  }

 private:
  struct State {
    void *q, *dout;
    float *dq, *lse, *delta;
  };
  State state(int64_t i) const {
    char* at = states_ + static_cast<size_t>(i) * layout_.bytes;
    float* dq = reinterpret_cast<float*>(at + 2 * layout_.operand_bytes);
    return {at, at + layout_.operand_bytes, dq, dq + d_ * tiles_.width, dq + (d_ + 1) * tiles_.width};
  }

  void open(const State& st, int64_t head, int64_t row, int64_t count) {
    const ConstTensorView q = args_.q.columns(head * d_, d_), dout = args_.dout.columns(head * d_, d_);
    engine_.pack_b(args_.math, q.row_range(row, count), BLayout::nt, 0, count, 0, d_, st.q);
    engine_.pack_b(args_.math, dout.row_range(row, count), BLayout::nt, 0, count, 0, d_, st.dout);
    std::fill_n(st.dq, (d_ + 2) * tiles_.width, 0.0f);
    for (int64_t c = 0; c < count; ++c) {
      st.lse[c] = args_.lse.row<float>(row + c)[head];
      st.delta[c] = static_cast<ConstTensorView>(args_.delta).row<float>(row + c)[head];
    }
  }

  void step(const State& st, int64_t edge, int64_t count, int64_t keys) {
    const int64_t width = tiles_.width, rows = std::min(keys, edge + count);
    const Band band{edge, 1, window_of(args_.shape)};
    if (rows <= 0 || keys <= edge + 1 - band.window) return;
    engine_.multiply(args_.math, rows, count, d_, keys_, st.q, scores_, width, false);
    engine_.multiply(args_.math, rows, count, d_, values_, st.dout, products_, width, false);
    score_gradient_by_column(scores_, products_, rows, keys, width, band, {args_.shape.scale, args_.shape.softcap},
                             st.lse, st.delta);
    const ConstTensorView ds(scores_, DType::f32, keys, count, width);
    engine_.pack_b(args_.math, ds, BLayout::nn, 0, count, 0, keys, packed_);
    engine_.multiply(args_.math, d_, count, keys, keys_t_, packed_, st.dq, width, true);
  }

  const TileEngine& engine_;
  const AttentionTiles& tiles_;
  const AttentionBackwardArgs& args_;
  const int64_t d_;
  ScratchCursor cursor_;
  const PanelLayout layout_;
  void *keys_, *values_, *keys_t_, *packed_;
  float *scores_, *products_, *factor_;
  char* states_ = nullptr;
};

class KeyPass {
 public:
  KeyPass(const TileEngine& engine, const AttentionTiles& tiles, const AttentionBackwardArgs& args, void* scratch)
      : engine_(engine),
        tiles_(tiles),
        args_(args),
        d_(args.shape.head_dim),
        cursor_(scratch),
        layout_(engine, args.math, tiles.width, d_, 2 * d_) {
    const size_t tile = engine.a_bytes(args.math, tiles.queries, d_);
    const size_t transposed = engine.a_bytes(args.math, d_, tiles.queries);
    q_ = cursor_.take(tile);
    dout_ = cursor_.take(tile);
    q_t_ = cursor_.take(transposed);
    dout_t_ = cursor_.take(transposed);
    scores_ = cursor_.floats(tiles.queries * tiles.width);
    products_ = cursor_.floats(tiles.queries * tiles.width);
    packed_ = cursor_.take(engine.b_bytes(args.math, tiles.width, tiles.queries));
    lse_ = cursor_.floats(tiles.queries);
    delta_ = cursor_.floats(tiles.queries);
    factor_ = cursor_.floats(tiles.width);
    states_ = static_cast<char*>(cursor_.take(static_cast<size_t>(tiles.columns / tiles.width) * layout_.bytes));
  }

  void run(const SequenceBlock& block, int64_t kv_head) {
    const AttentionShape& shape = args_.shape;
    const int64_t start = shape.cu_q[block.seq], length = shape.cu_q[block.seq + 1] - start, width = tiles_.width;
    const int64_t group = shape.heads / shape.kv_heads, panels = (block.count + width - 1) / width;
    const int64_t end = std::min(length, block.first + block.count - 1 + window_of(shape));  // of queries that see it
    const auto count_of = [&](int64_t i) { return std::min(width, block.count - i * width); };
    for (int64_t i = 0; i < panels; ++i) open(state(i), kv_head, start + block.first + i * width, count_of(i));
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (int64_t q0 = block.first / tiles_.queries * tiles_.queries; q0 < end; q0 += tiles_.queries) {
        const int64_t queries = std::min(tiles_.queries, length - q0);
        pack_queries(head, start + q0, queries);
        for (int64_t i = 0; i < panels; ++i) step(state(i), q0 - (block.first + i * width), count_of(i), queries);
      }
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t row = start + block.first + i * width;
      const auto store = [&](const float* sums, const TensorView& to, float factor) {
        if (!to) return;
        std::fill_n(factor_, width, factor);
        store_columns(sums, d_, width, count_of(i), factor_, to.columns(kv_head * d_, d_).row_range(row, count_of(i)));
      };
      store(state(i).dk, args_.dk, shape.scale);
      store(state(i).dv, args_.dv, 1.0f);
    }
  }

 private:
  struct State {
    void *k, *v;
    float *dk, *dv;
  };
  State state(int64_t i) const {
    char* at = states_ + static_cast<size_t>(i) * layout_.bytes;
    float* dk = reinterpret_cast<float*>(at + 2 * layout_.operand_bytes);
    return {at, at + layout_.operand_bytes, dk, dk + d_ * tiles_.width};
  }

  void open(const State& st, int64_t kv_head, int64_t row, int64_t count) {
    const ConstTensorView k = args_.k.columns(kv_head * d_, d_), v = args_.v.columns(kv_head * d_, d_);
    engine_.pack_b(args_.math, k.row_range(row, count), BLayout::nt, 0, count, 0, d_, st.k);
    engine_.pack_b(args_.math, v.row_range(row, count), BLayout::nt, 0, count, 0, d_, st.v);
    std::fill_n(st.dk, 2 * d_ * tiles_.width, 0.0f);
  }

  void pack_queries(int64_t head, int64_t row, int64_t queries) {
    const ConstTensorView q = args_.q.columns(head * d_, d_), dout = args_.dout.columns(head * d_, d_);
    engine_.pack_a(args_.math, q, false, row, queries, 0, d_, q_);
    engine_.pack_a(args_.math, dout, false, row, queries, 0, d_, dout_);
    engine_.pack_a(args_.math, q, true, 0, d_, row, queries, q_t_);
    engine_.pack_a(args_.math, dout, true, 0, d_, row, queries, dout_t_);
    for (int64_t r = 0; r < queries; ++r) {
      lse_[r] = args_.lse.row<float>(row + r)[head];
      delta_[r] = static_cast<ConstTensorView>(args_.delta).row<float>(row + r)[head];
    }
  }

  // Query r of the tile sees the window's columns up to edge + r.
  void step(const State& st, int64_t edge, int64_t count, int64_t queries) {
    const int64_t width = tiles_.width;
    const Band band{edge, 1, window_of(args_.shape)};
    if (edge + queries <= 0 || count <= edge + 1 - band.window) return;
    engine_.multiply(args_.math, queries, count, d_, q_, st.k, scores_, width, false);
    engine_.multiply(args_.math, queries, count, d_, dout_, st.v, products_, width, false);
    score_gradient_by_row(scores_, products_, queries, width, band, {args_.shape.scale, args_.shape.softcap}, lse_,
                          delta_);
    accumulate(dout_t_, scores_, count, queries, st.dv);
    accumulate(q_t_, products_, count, queries, st.dk);
  }

  // sum [d][width] += a [d, queries] * tile [queries][width].
  void accumulate(const void* a, const float* tile, int64_t count, int64_t queries, float* sum) {
    const ConstTensorView b(tile, DType::f32, queries, count, tiles_.width);
    engine_.pack_b(args_.math, b, BLayout::nn, 0, count, 0, queries, packed_);
    engine_.multiply(args_.math, d_, count, queries, a, packed_, sum, tiles_.width, true);
  }

  const TileEngine& engine_;
  const AttentionTiles& tiles_;
  const AttentionBackwardArgs& args_;
  const int64_t d_;
  ScratchCursor cursor_;
  const PanelLayout layout_;
  void *q_, *dout_, *q_t_, *dout_t_, *packed_;
  float *scores_, *products_, *lse_, *delta_, *factor_;
  char* states_;
};

}  // namespace

void attention_backward(Context& ctx, const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.shape;
  const TileEngine& engine = tile_engine(ctx.isa());
  const AttentionTiles tiles(engine, shape.head_dim);
  const int64_t group = shape.heads / shape.kv_heads, blocks = count_blocks(shape.cu_q, shape.num_seqs, tiles.columns);

  parallel_for(ctx, args.q.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < shape.heads; ++h)
        args.delta.row<float>(t)[h] = dot(args.dout, args.o, t, h * shape.head_dim, shape.head_dim);
  });

  const int64_t limit = QueryPass(engine, tiles, args, ctx.scratch(0)).most_heads();
  const int64_t heads = heads_per_task(ctx, blocks, shape, limit);
  const int64_t splits = (group + heads - 1) / heads, per_block = shape.kv_heads * splits;
  const int64_t tasks = blocks * per_block;
  parallel_for(ctx, args.dq ? tasks : 0, 1, [&](int64_t begin, int64_t, int thread) {
    const int64_t task = tasks - 1 - begin;  // late queries see more keys: longest first
    const int64_t kv_head = task % per_block / splits, first = task % splits * heads;
    QueryPass(engine, tiles, args, ctx.scratch(thread))
        .run(find_block(shape.cu_q, tiles.columns, task / per_block), kv_head, kv_head * group + first,
             std::min(heads, group - first));
  });
  parallel_for(ctx, args.dk || args.dv ? blocks * shape.kv_heads : 0, 1, [&](int64_t task, int64_t, int thread) {
    KeyPass(engine, tiles, args, ctx.scratch(thread))
        .run(find_block(shape.cu_q, tiles.columns, task / shape.kv_heads), task % shape.kv_heads);
  });
}

}  // namespace bantam::cpu
