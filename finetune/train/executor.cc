// SPDX-License-Identifier: Apache-2.0
#include "executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "../../kernels/cross_entropy.h"
#include "../../kernels/dropout.h"
#include "../../kernels/embedding.h"
#include "../../kernels/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

namespace bantam {

namespace {
constexpr size_t kAlign = 256;  // of the parts of the step constants

// Names the parts of a step for profilers: "layers.3 recompute".
class RangeNames {
 public:
  explicit RangeNames(const Backend& backend) : backend_(backend) {}
  ~RangeNames() {
    if (open_) backend_.range_end();
  }
  void enter(int stage, int phase, const LayerGraph& graph) {
    if (!backend_.range_begin || (open_ && stage == stage_ && phase == phase_)) return;
    if (open_) backend_.range_end();
    static constexpr const char* kPhases[] = {"forward", "recompute", "backward"};
    const std::string where = graph.layer >= 0 ? str("layers.", graph.layer) : stage == 0 ? "embedding" : "loss";
    backend_.range_begin(str(where, " ", kPhases[phase]).c_str());
    stage_ = stage;
    phase_ = phase;
    open_ = true;
  }

 private:
  const Backend& backend_;
  int stage_ = 0, phase_ = 0;
  bool open_ = false;
};
}  // namespace

StepBuffers::StepBuffers(const Backend& backend, const ModelConfig& config, int64_t max_tokens)
    : backend_(backend), max_tokens_(max_tokens), half_(config.head_dim / 2), vocab_size_(config.vocab_size) {
  for (const double f : config.rope_inv_freq()) inv_freq_.push_back(static_cast<float>(f));
  host_.resize(bytes(config, max_tokens) + 5 * kAlign);
  if (!backend.host_memory) device_ = DeviceBuffer(backend, host_.size(), "step constants");
  const auto t = static_cast<size_t>(max_tokens);
  weights_.resize(t);
  labels_.resize(t);
  cu_seqlens_.resize(t + 1);
}

size_t StepBuffers::bytes(const ModelConfig& config, int64_t max_tokens) {
  return static_cast<size_t>(max_tokens) *
         (static_cast<size_t>(config.head_dim) * sizeof(float) + 5 * sizeof(int32_t) + sizeof(uint64_t));
}

// Where each part begins in host_, for so many tokens, and the end.
StepBuffers::Layout StepBuffers::layout(int64_t half, int64_t tokens) {
  Layout at;
  const auto part = [&](size_t& begin, size_t bytes) {
    begin = at.end;
    at.end += (bytes + kAlign - 1) / kAlign * kAlign;
  };
  const auto t = static_cast<size_t>(tokens), angles = t * static_cast<size_t>(half) * sizeof(float);
  part(at.ids, t * sizeof(int32_t));
  part(at.positions, t * sizeof(int32_t));
  part(at.row_key, t * sizeof(uint64_t));
  part(at.cos, angles);
  part(at.sin, angles);
  return at;
}

size_t StepBuffers::upload_bytes(const ModelConfig& config, int64_t max_tokens) {
  return layout(config.head_dim / 2, max_tokens).end;
}

void StepBuffers::place(int64_t tokens) {
  const Layout at = layout(half_, tokens);
  used_ = at.end;
  const auto put = [&]<class T>(T*& p, size_t begin) { p = reinterpret_cast<T*>(host_.data() + begin); };
  put(ids_, at.ids);
  put(positions_, at.positions);
  put(row_key_, at.row_key);
  put(cos_, at.cos);
  put(sin_, at.sin);
}

void StepBuffers::fill_rope() {
  // The angle is rounded to f32 as transformers has it; its sine and cosine are correctly rounded.
  const auto angles_of = [&](int64_t position, float* cos, float* sin) {
    for (int64_t i = 0; i < half_; ++i) {
      const float angle = static_cast<float>(position) * inv_freq_[static_cast<size_t>(i)];
      cos[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sin[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  };
  const auto half = static_cast<size_t>(half_);
  for (int64_t t = 0; t < inputs_.tokens; ++t) {
    const int64_t p = positions_[t];
    if (backend_.host_memory || p >= max_tokens_) {
      angles_of(p, cos_ + t * half_, sin_ + t * half_);
      continue;
    }
    for (; rope_known_ <= p; ++rope_known_) {
      rope_.resize(rope_.size() + 2 * half);
      float* const row = rope_.data() + rope_known_ * 2 * half_;
      angles_of(rope_known_, row, row + half_);
    }
    const float* const row = rope_.data() + p * 2 * half_;
    std::copy_n(row, half, cos_ + t * half_);
    std::copy_n(row + half_, half, sin_ + t * half_);
  }
  inputs_.cos = {cos_, DType::f32, inputs_.tokens, half_};
  inputs_.sin = {sin_, DType::f32, inputs_.tokens, half_};
}

void StepBuffers::send() {
  if (backend_.host_memory) return;
  backend_.upload_async(device_.data(), host_.data(), used_);
  const auto there = [&]<class T>(const T* p) {
    const char* const at = static_cast<const char*>(device_.data()) + (reinterpret_cast<const char*>(p) - host_.data());
    return reinterpret_cast<const T*>(at);
  };
  inputs_.ids = there(ids_);
  inputs_.positions = there(positions_);
  inputs_.row_key = there(row_key_);
  inputs_.cos.data = there(cos_);
  inputs_.sin.data = there(sin_);
}

const StepInputs& StepBuffers::fill(const Batch& batch, double weight_scale, uint64_t seed, uint64_t epoch,
                                    bool training) {
  const int64_t tokens = batch.tokens();
  if (tokens > max_tokens_ || tokens < 1)
    throw Error(ErrorCode::internal, str("micro-batch of ", tokens, " tokens; memory is planned for ", max_tokens_));
  check_token_ids("micro-batch", batch.ids, vocab_size_);
  check_labels("micro-batch", batch.labels, vocab_size_);
  const auto n = static_cast<size_t>(tokens);
  place(tokens);
  std::copy(batch.ids.begin(), batch.ids.end(), ids_);
  std::copy(batch.labels.begin(), batch.labels.end(), labels_.begin());
  std::copy(batch.positions.begin(), batch.positions.end(), positions_);
  std::copy(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), cu_seqlens_.begin());
  for (size_t t = 0; t < n; ++t) weights_[t] = static_cast<float>(batch.weights[t] * weight_scale);
  for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const uint64_t key = dropout_row_key(seed, epoch, batch.sample_ids[s]);
    for (auto t = static_cast<size_t>(batch.cu_seqlens[s]); t < static_cast<size_t>(batch.cu_seqlens[s + 1]); ++t)
      row_key_[t] = key;
  }
  inputs_ = {.tokens = tokens,
             .ids = ids_,
             .labels = labels_.data(),
             .weights = weights_.data(),
             .positions = positions_,
             .cu_seqlens = cu_seqlens_.data(),
             .num_seqs = static_cast<int64_t>(batch.cu_seqlens.size()) - 1,
             .row_key = row_key_,
             .training = training};
  fill_rope();
  send();
  return inputs_;
}

const StepInputs& StepBuffers::fill_tokens(std::span<const int32_t> ids, int64_t start) {
  if (static_cast<int64_t>(ids.size()) > max_tokens_ || ids.empty())
    throw Error(ErrorCode::internal, str(ids.size(), " tokens; memory is planned for ", max_tokens_));
  check_token_ids("generation", ids, vocab_size_);
  place(static_cast<int64_t>(ids.size()));
  std::copy(ids.begin(), ids.end(), ids_);
  for (size_t t = 0; t < ids.size(); ++t) {
    positions_[t] = static_cast<int32_t>(start) + static_cast<int32_t>(t);
    labels_[t] = kIgnoreLabel;
    weights_[t] = 0;
    row_key_[t] = 0;
  }
  cu_seqlens_[0] = 0;
  cu_seqlens_[1] = static_cast<int32_t>(ids.size());
  inputs_ = {.tokens = static_cast<int64_t>(ids.size()),
             .ids = ids_,
             .labels = labels_.data(),
             .weights = weights_.data(),
             .positions = positions_,
             .cu_seqlens = cu_seqlens_.data(),
             .num_seqs = 1,
             .row_key = row_key_};
  fill_rope();
  send();
  return inputs_;
}

Executor::Executor(Context& ctx, const ModelGraph& model, std::shared_ptr<const WeightStore> store, void* memory,
                   size_t bytes)
    : ctx_(ctx), model_(model), store_(std::move(store)), memory_(static_cast<char*>(memory)), bytes_(bytes) {}

Executor::~Executor() {
  if (workspace_ == 0) return;
  try {
    ctx_.backend().reserve_workspace(0);
    ctx_.backend().reserve_staging(0);
    ctx_.backend().reserve_decoded_weights(nullptr, 0);
  } catch (const Error&) {
    // A device in error has told so already.
  }
}

void Executor::reserve(size_t workspace, size_t staging, std::vector<size_t> decoded_slots) {
  if (!ctx_.backend().reserve_workspace) return;
  workspace_ = workspace;
  staging_ = staging;
  decoded_slots_ = std::move(decoded_slots);
  claim();
}

void Executor::claim() const {
  if (workspace_ == 0) return;
  ctx_.backend().reserve_workspace(workspace_);
  ctx_.backend().reserve_staging(staging_);
  ctx_.backend().reserve_decoded_weights(decoded_slots_.data(), decoded_slots_.size());
}

// The next frozen matrix that an instruction from `instr` on multiplies with is decoded while those before it run.
void Executor::prefetch(const Program& p, size_t instr) const {
  for (size_t i = instr; i < p.instrs.size(); ++i) {
    const Instr& n = p.instrs[i];
    const LayerGraph& graph = model_.stages[static_cast<size_t>(n.stage)];
    const std::string name = product_weight(graph.ops[static_cast<size_t>(n.op)], n.backward, n.din[0].buffer >= 0);
    if (name.empty()) continue;
    const Math math = model_.dtype == DType::bf16 ? Math::bf16 : Math::f32;
    return ctx_.backend().prefetch_weight(ctx_, store_->acquire(graph.layer).matrix(name), math);
  }
}

// Asks for the copies and waits of an instruction, those before it or those after it, from transfer `next` on; the
// next.
size_t Executor::transfer(const Program& p, size_t next, int instr, bool after, int64_t tokens) const {
  const Backend& backend = ctx_.backend();
  for (; next < p.transfers.size(); ++next) {
    const Transfer& t = p.transfers[next];
    if (t.instr != instr || (t.kind == Transfer::Kind::stored) != after) break;
    const HostBuffer& h = p.host[static_cast<size_t>(t.host)];
    char *const device = memory_ + p.buffers[static_cast<size_t>(t.buffer)].offset, *const host =
                                                                                        host_memory_ + h.offset;
    const auto bytes = static_cast<size_t>(h.row_bytes * tokens);
    if (t.kind == Transfer::Kind::store)
      backend.copy_out(host, device, bytes, t.slot);
    else if (t.kind == Transfer::Kind::load)
      backend.copy_in(device, host, bytes, t.slot);
    else
      backend.wait_copy(t.slot);
  }
  return next;
}

std::span<const float> Executor::losses(const Program& program, int64_t tokens) {
  const auto n = static_cast<size_t>(tokens);
  const auto* at = static_cast<const float*>(data(program, program.loss));
  if (ctx_.backend().host_memory) return {at, n};
  losses_.resize(n);
  ctx_.backend().download(losses_.data(), at, n * sizeof(float));
  return losses_;
}

TensorView Executor::view(const Program& p, const ValueRef& r, int64_t tokens) const {
  if (r.buffer < 0) return {};
  return {memory_ + p.buffers[static_cast<size_t>(r.buffer)].offset, r.dtype, tokens, r.width};
}

void Executor::run(const Program& program, const StepInputs& step, const RunOptions& options) {
  if (program.peak > bytes_ || step.tokens > program.max_tokens)
    throw Error(ErrorCode::internal, str("program needs ", program.peak, " bytes for up to ", program.max_tokens,
                                         " tokens; has ", bytes_, " for ", step.tokens));
  if (program.host_peak > host_bytes_)
    throw Error(ErrorCode::internal,
                str("program needs ", program.host_peak, " bytes of host memory; has ", host_bytes_));

  claim();
  const bool host = ctx_.backend().host_memory, ahead = ctx_.backend().prefetch_weight != nullptr;
  std::vector<std::vector<int>> starts, ends;
  const auto kill = [&](int b) {  // 0xff bytes are NaN in f32 and bf16
    const Buffer& buffer = program.buffers[static_cast<size_t>(b)];
    ctx_.backend().fill(memory_ + buffer.offset, 0xff, buffer.bytes);
    if (host) ASAN_POISON_MEMORY_REGION(memory_ + buffer.offset, buffer.bytes);
  };
  if (options.poison_dead) {
    starts.resize(program.instrs.size());
    ends.resize(program.instrs.size());
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      starts[static_cast<size_t>(program.buffers[b].first)].push_back(static_cast<int>(b));
      ends[static_cast<size_t>(program.buffers[b].last)].push_back(static_cast<int>(b));
    }
    if (host) ASAN_UNPOISON_MEMORY_REGION(memory_, bytes_);
    ctx_.backend().fill(memory_, 0xff, bytes_);
    if (host) ASAN_POISON_MEMORY_REGION(memory_, bytes_);
  }

  const Backend& backend = ctx_.backend();
  const auto phase_of = [](const Instr& n) {
    return n.backward ? Phase::backward : n.recompute ? Phase::recompute : Phase::forward;
  };
  const bool marks = options.timed && backend.time_mark;
  RangeNames ranges(backend);
  constexpr size_t kMostMarks = 1 << 14;  // of runs whose times nobody took
  if (marked_.size() > kMostMarks) collect_times();
  int leased = -2;
  WeightLease lease;
  size_t next_transfer = 0;
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    const Instr& n = program.instrs[i];
    const LayerGraph& graph = model_.stages[static_cast<size_t>(n.stage)];
    const Op& op = graph.ops[static_cast<size_t>(n.op)];
    if (graph.layer != leased) {
      lease = store_->acquire(graph.layer);
      leased = graph.layer;
      const int next = graph.layer + (n.backward || n.recompute ? -1 : 1);
      if (graph.layer >= 0 && next >= 0 && next < static_cast<int>(model_.config.num_hidden_layers))
        store_->prefetch(next);
    }
    if (options.poison_dead)
      for (const int b : starts[i]) {
        const Buffer& buffer = program.buffers[static_cast<size_t>(b)];
        if (host) ASAN_UNPOISON_MEMORY_REGION(memory_ + buffer.offset, buffer.bytes);
        ctx_.backend().fill(memory_ + buffer.offset, 0xff, buffer.bytes);
      }
    OpRun r{.ctx = &ctx_,
            .model = model_,
            .graph = graph,
            .op = op,
            .step = step,
            .weights = lease,
            .adapters = options.adapters,
            .grads = options.adapters};
    if (options.caches && op.kind == OpKind::attention) r.cache = &(*options.caches)[static_cast<size_t>(graph.layer)];
    bind_views(r, n, [&](const ValueRef& v) { return view(program, v, step.tokens); });
    if (n.scratch >= 0) {
      const Buffer& s = program.buffers[static_cast<size_t>(n.scratch)];
      r.scratch = memory_ + s.offset;
      r.scratch_bytes = s.bytes;
    }
    const Phase phase = phase_of(n);
    ranges.enter(n.stage, static_cast<int>(phase), graph);
    if (marks && (marked_.empty() || marked_.back() != phase)) {
      backend.time_mark(static_cast<int>(marked_.size()));
      marked_.push_back(phase);
    }
    next_transfer = transfer(program, next_transfer, static_cast<int>(i), false, step.tokens);
    if (ahead) prefetch(program, i + 1);
    const auto t0 = std::chrono::steady_clock::now();
    n.backward ? info(op.kind).backward(r) : info(op.kind).forward(r);
    next_transfer = transfer(program, next_transfer, static_cast<int>(i), true, step.tokens);
    if (options.profile && backend.synchronize) backend.synchronize();
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
    if (options.timed && !marks) seconds(phase) += s;
    if (options.profile) options.profile(n, op, s);
    if (options.poison_dead)
      for (const int b : ends[i])
        if (i + 1 < program.instrs.size()) kill(b);
  }
  if (marks) {
    backend.time_mark(static_cast<int>(marked_.size()));
    marked_.emplace_back();  // what lies between two runs is nobody's
  }
  if (options.poison_dead && host) ASAN_UNPOISON_MEMORY_REGION(memory_, bytes_);
}

void Executor::collect_times() {
  for (size_t i = 0; i < marked_.size(); ++i)
    if (marked_[i])
      seconds(*marked_[i]) += ctx_.backend().seconds_between(static_cast<int>(i), static_cast<int>(i) + 1);
  marked_.clear();
}

RunTimes Executor::take_times() {
  collect_times();
  return std::exchange(times_, {});
}

}  // namespace bantam
