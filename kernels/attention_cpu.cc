// SPDX-License-Identifier: Apache-2.0
// Forward of the CPU attention. A task is a block of queries of one sequence and some query heads that share a key
// head. It walks over the keys in tiles counted from the sequence's start; a tile of keys and values is packed once and
// used by all columns of the task. Scores are kept transposed, [keys][queries] (see attention_tiles.h).
#include <cmath>
#include <limits>

#include "attention.h"
#include "attention_tiles.h"
#include "cpu_ops.h"

namespace bantam::cpu {

namespace {

// Up to `width` columns: queries of one head, or, where the sequence has one query, heads of it.
struct Panel {
  int64_t head, row, count;  // first query head, first row of q, columns
  int64_t position;          // of the first column among the keys of its sequence
  bool by_head;
  int64_t last_position() const { return by_head ? position : position + count - 1; }
};

class ForwardTask {
 public:
  ForwardTask(const TileEngine& engine, const AttentionTiles& tiles, const AttentionArgs& args, void* scratch)
      : engine_(engine), tiles_(tiles), args_(args), d_(args.shape.head_dim), cursor_(scratch) {
    keys_ = cursor_.take(engine.a_bytes(args.math, tiles.keys, d_));
    values_ = cursor_.take(engine.a_bytes(args.math, d_, tiles.keys));
    scores_ = cursor_.floats(tiles.keys * tiles.width);
    weights_ = cursor_.take(engine.b_bytes(args.math, tiles.width, tiles.keys));
    correction_ = cursor_.floats(tiles.width);
    query_bytes_ = (engine.b_bytes(args.math, tiles.width, d_) + 63) / 64 * 64;
    panel_bytes_ = query_bytes_ + static_cast<size_t>((d_ * tiles.width + 2 * tiles.width) * 4 + 64);
  }

  // Heads whose columns fit into scratch together.
  int64_t most_heads() const {
    const auto panels = static_cast<int64_t>(cursor_.left() / panel_bytes_);
    return panels / (tiles_.columns / tiles_.width);
  }

  // Query heads [head, head + heads), all of key head `kv_head`.
  void run(const SequenceBlock& block, int64_t kv_head, int64_t head, int64_t heads) {
    const AttentionShape& shape = args_.shape;
    const int64_t q_row = shape.cu_q[block.seq], k_row = shape.cu_k[block.seq];
    const int64_t queries = shape.cu_q[block.seq + 1] - q_row, all_keys = shape.cu_k[block.seq + 1] - k_row;
    const int64_t before = all_keys - queries;  // position of the sequence's first query
    const int64_t seen = before + block.first + block.count, window = window_of(shape);
    const int64_t first_seen = std::max<int64_t>(0, before + block.first + 1 - window);
    const bool by_head = queries == 1;
    const int64_t per_head = (block.count + tiles_.width - 1) / tiles_.width;
    const int64_t panels = by_head ? (heads + tiles_.width - 1) / tiles_.width : heads * per_head;
    const auto panel_at = [&](int64_t i) -> Panel {
      if (by_head) {
        const int64_t h = i * tiles_.width;
        return {head + h, q_row, std::min(tiles_.width, heads - h), before, true};
      }
      const int64_t first = i % per_head * tiles_.width;
      return {head + i / per_head, q_row + block.first + first, std::min(tiles_.width, block.count - first),
              before + block.first + first, false};
    };

    char* states = static_cast<char*>(ScratchCursor(cursor_).take(static_cast<size_t>(panels) * panel_bytes_));
    for (int64_t i = 0; i < panels; ++i) open(panel_at(i), states + static_cast<size_t>(i) * panel_bytes_);
    const ConstTensorView k = args_.k.columns(kv_head * d_, d_), v = args_.v.columns(kv_head * d_, d_);
    for (int64_t k0 = first_seen / tiles_.keys * tiles_.keys; k0 < seen; k0 += tiles_.keys) {
      const int64_t count = std::min(tiles_.keys, seen - k0);
      engine_.pack_a(args_.math, k, false, k_row + k0, count, 0, d_, keys_);
      engine_.pack_a(args_.math, v, true, 0, d_, k_row + k0, count, values_);
      for (int64_t i = 0; i < panels; ++i) step(panel_at(i), states + static_cast<size_t>(i) * panel_bytes_, k0, count);
    }
    for (int64_t i = 0; i < panels; ++i) close(panel_at(i), states + static_cast<size_t>(i) * panel_bytes_);
  }

 private:
  struct State {
    void* queries;
    float *out, *max, *sum;
  };
  State state(char* at) const {
    float* out = reinterpret_cast<float*>(at + query_bytes_);
    float* max = out + d_ * tiles_.width;
    return {at, out, max, max + tiles_.width};
  }

  void open(const Panel& p, char* at) {
    const State st = state(at);
    const ConstTensorView& q = args_.q;
    ConstTensorView rows = q.columns(p.head * d_, d_).row_range(p.row, p.by_head ? 1 : p.count);
    if (p.by_head) rows = {rows.data, q.dtype, p.count, d_, d_};
    engine_.pack_b(args_.math, rows, BLayout::nt, 0, p.count, 0, d_, st.queries);
    std::fill_n(st.max, tiles_.width, -std::numeric_limits<float>::infinity());
    std::fill_n(st.sum, tiles_.width, 0.0f);
    std::fill_n(st.out, d_ * tiles_.width, 0.0f);
  }

  void step(const Panel& p, char* at, int64_t k0, int64_t count) {
    const State st = state(at);
    const AttentionShape& shape = args_.shape;
    const int64_t width = tiles_.width, rows = std::min(count, p.last_position() + 1 - k0);
    const Band band{p.position - k0, p.by_head ? 0 : 1, window_of(shape)};
    if (rows <= 0 || count <= band.edge + 1 - band.window) return;  // all later than, or before what its rows see
    engine_.multiply(args_.math, rows, p.count, d_, keys_, st.queries, scores_, width, false);
    const ScoreRule rule{shape.scale, shape.softcap};
    if (softmax_tile(scores_, rows, count, width, band, rule, st.max, st.sum, correction_) && k0 > 0)
      scale_columns(st.out, d_, width, correction_);
    const ConstTensorView weights(scores_, DType::f32, count, p.count, width);
    engine_.pack_b(args_.math, weights, BLayout::nn, 0, p.count, 0, count, weights_);
    engine_.multiply(args_.math, d_, p.count, count, values_, weights_, st.out, width, true);
  }

  void close(const Panel& p, char* at) {
    const State st = state(at);
    for (int64_t c = 0; c < p.count; ++c) {
      const int64_t row = p.by_head ? p.row : p.row + c, head = p.by_head ? p.head + c : p.head;
      args_.lse.row<float>(row)[head] = static_cast<float>(st.max[c] + std::log(static_cast<double>(st.sum[c])));
      correction_[c] = 1.0f / st.sum[c];
    }
    TensorView rows = args_.o.columns(p.head * d_, d_).row_range(p.row, p.by_head ? 1 : p.count);
    if (p.by_head) rows = {rows.data, rows.dtype, p.count, d_, d_};
    store_columns(st.out, d_, tiles_.width, p.count, correction_, rows);
  }

  const TileEngine& engine_;
  const AttentionTiles& tiles_;
  const AttentionArgs& args_;
  const int64_t d_;
  ScratchCursor cursor_;
  void *keys_, *values_, *weights_;
  float *scores_, *correction_;
  size_t query_bytes_, panel_bytes_;
};

}  // namespace

void attention(Context& ctx, const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  const TileEngine& engine = tile_engine(ctx.isa());
  const AttentionTiles tiles(engine, shape.head_dim);
  const int64_t group = shape.heads / shape.kv_heads, blocks = count_blocks(shape.cu_q, shape.num_seqs, tiles.columns);
  const int64_t limit = ForwardTask(engine, tiles, args, ctx.scratch(0)).most_heads();
  const int64_t heads = heads_per_task(ctx, blocks, shape, limit);
  const int64_t splits = (group + heads - 1) / heads, per_block = shape.kv_heads * splits;
  const int64_t tasks = blocks * per_block;
  parallel_for(ctx, tasks, 1, [&](int64_t begin, int64_t, int thread) {
    const int64_t task = tasks - 1 - begin;  // late blocks see more keys: longest first
    const int64_t kv_head = task % per_block / splits, first = task % splits * heads;
    ForwardTask(engine, tiles, args, ctx.scratch(thread))
        .run(find_block(shape.cu_q, tiles.columns, task / per_block), kv_head, kv_head * group + first,
             std::min(heads, group - first));
  });
}

}  // namespace bantam::cpu
