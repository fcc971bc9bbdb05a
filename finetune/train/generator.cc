// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../../kernels/device_scratch.h"
#include "../../kernels/error.h"
#include "../../kernels/hash.h"
#include "device_needs.h"

namespace bantam {

namespace {

int32_t pick(std::span<const float> logits, const GenerateOptions& o, uint64_t draw) {
  const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (o.temperature <= 0) return best;
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  std::vector<double> p(order.size());
  double sum = 0;
  const double top = static_cast<double>(logits[static_cast<size_t>(best)]);
  for (size_t i = 0; i < p.size(); ++i)
    sum += p[i] = std::exp((static_cast<double>(logits[static_cast<size_t>(order[i])]) - top) / o.temperature);
  double kept = 0;
  size_t n = 0;
  while (n < p.size() && kept < o.top_p * sum) kept += p[n++];
  double u = uniform53(mix64(o.seed ^ mix64(draw))) * kept;
  for (size_t i = 0; i < n; ++i)
    if ((u -= p[i]) < 0) return order[i];
  return order[n - 1];
}

}  // namespace

Generator::Generator(Context& ctx, std::shared_ptr<const Model> model, AdapterSet* adapters, DType dtype,
                     int64_t max_length)
    : ctx_(ctx),
      model_(std::move(model)),
      adapters_(adapters),
      graph_(build_model_graph(model_->config, dtype, adapters, Tail::hidden)),
      max_length_(max_length) {
  const ModelConfig& c = model_->config;
  if (max_length < 1 || max_length > c.max_position_embeddings)
    throw Error(ErrorCode::usage,
                str("length ", max_length, ": this model takes 1 to ", c.max_position_embeddings, " tokens"),
                "shorten the prompt or max_new_tokens");
  program_ = compile(graph_, evaluation_schedule(graph_), {.max_tokens = std::min(kChunk, max_length)});
  const size_t cache = static_cast<size_t>(max_length * c.kv_size()) * size_of(dtype);
  arena_.emplace(ctx.backend(),
                 std::vector<Arena::Region>{{"activations", program_.peak},
                                            {"KV cache", 2 * cache * static_cast<size_t>(c.num_hidden_layers)}});
  auto* at = static_cast<char*>(arena_->region("KV cache"));
  for (int64_t l = 0; l < c.num_hidden_layers; ++l, at += 2 * cache)
    caches_.push_back({{at, dtype, max_length, c.kv_size()}, {at + cache, dtype, max_length, c.kv_size()}, 0});
  buffers_.emplace(ctx.backend(), c, program_.max_tokens);
  store_ = model_->store->on(ctx.backend());
  if (adapters_) adapters_->move_to(ctx.backend());
  executor_.emplace(ctx, graph_, store_, arena_->region("activations"), program_.peak);
  logits_ = Tensor(DType::f32, 1, c.vocab_size);
  if (ctx.backend().host_memory) return;
  DeviceNeeds needs = device_needs(graph_, program_, model_->store->formats(), attention_library(ctx));
  const std::string head = head_weight_name(c);
  const ProductArgs logits{
      .terms = {{.a = {nullptr, dtype, program_.max_tokens, c.hidden_size}, .b = *store_->find_matrix(head)}},
      .c = {nullptr, DType::f32, program_.max_tokens, c.vocab_size},
      .math = math()};
  needs.workspace = std::max(needs.workspace, device_scratch(logits));
  if (const size_t bytes = decoded_bytes(logits.terms[0].b, math())) needs.decoded[head] = {-1, bytes};
  executor_->reserve(needs.workspace, staging_bytes(needs.upload), decoded_slots(needs, 0));
}

void Generator::reset() {
  length_ = 0;
  for (auto& c : caches_) c.length = 0;
}

ConstTensorView Generator::forward(std::span<const int32_t> ids) {
  if (length_ + static_cast<int64_t>(ids.size()) > max_length_)
    throw Error(ErrorCode::usage,
                str("sequence of ", length_ + static_cast<int64_t>(ids.size()), " tokens, room for ", max_length_),
                "ask for fewer new tokens, or a shorter prompt");
  executor_->run(program_, buffers_->fill_tokens(ids, length_), {.adapters = adapters_, .caches = &caches_});
  length_ += static_cast<int64_t>(ids.size());
  return {executor_->data(program_, program_.result), graph_.dtype, static_cast<int64_t>(ids.size()),
          model_->config.hidden_size};
}

void Generator::head(const ConstTensorView& hidden, const TensorView& out) {
  const WeightLease top = store_->acquire(WeightStore::kTop);
  const bool host = ctx_.backend().host_memory;
  const size_t bytes = static_cast<size_t>(out.rows * out.cols) * sizeof(float);
  TensorView c = out;
  if (!host) {
    if (bytes > device_logits_bytes_) {  // once for a chunk of logits(), once for generating
      device_logits_ = DeviceBuffer();
      device_logits_ = DeviceBuffer(ctx_.backend(), bytes, "logits");
      device_logits_bytes_ = bytes;
    }
    c.data = device_logits_.data();
  }
  product(ctx_, {.terms = {{.a = hidden, .b = top.matrix(head_weight_name(model_->config))}}, .c = c, .math = math()});
  if (!host) device_logits_.download(out.data, bytes);
}

std::span<const float> Generator::append(std::span<const int32_t> ids) {
  if (ids.empty())
    throw Error(ErrorCode::usage, "an empty prompt: there is nothing to continue", "give at least one token");
  ConstTensorView hidden;
  for (size_t at = 0; at < ids.size(); at += static_cast<size_t>(program_.max_tokens))
    hidden = forward(ids.subspan(at, std::min(ids.size() - at, static_cast<size_t>(program_.max_tokens))));
  head(hidden.row_range(hidden.rows - 1, 1), logits_.view());
  return {logits_.data<float>(), static_cast<size_t>(model_->config.vocab_size)};
}

Tensor Generator::logits(std::span<const int32_t> ids) {
  reset();
  Tensor all(DType::f32, static_cast<int64_t>(ids.size()), model_->config.vocab_size);
  for (size_t at = 0; at < ids.size(); at += static_cast<size_t>(program_.max_tokens)) {
    const size_t n = std::min(ids.size() - at, static_cast<size_t>(program_.max_tokens));
    head(forward(ids.subspan(at, n)), all.view().row_range(static_cast<int64_t>(at), static_cast<int64_t>(n)));
  }
  return all;
}

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                         const std::function<bool(int32_t)>& on_token) {
  std::vector<int32_t> out;
  std::span<const float> logits = append(prompt);
  while (static_cast<int64_t>(out.size()) < options.max_new_tokens) {
    const int32_t id = pick(logits, options, out.size());
    if (std::find(options.stop.begin(), options.stop.end(), id) != options.stop.end()) break;
    out.push_back(id);
    if (on_token && !on_token(id)) break;
    if (static_cast<int64_t>(out.size()) == options.max_new_tokens || length_ == max_length_) break;
    logits = append({&id, 1});
  }
  return out;
}

}  // namespace bantam
