// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "../finetune/data/chat/chat_encoder.h"
#include "../finetune/data/grouped.h"
#include "../finetune/text/utf8.h"
#include "../kernels/device_choice.h"
#include "../kernels/hash.h"
#include "resolved.h"

namespace bantam {

namespace {

namespace fs = std::filesystem;

CheckpointPolicy checkpoint_policy(const Recipe& r) {
  CheckpointPolicy p;
  switch (r.gradient_checkpointing) {
    case Recipe::Checkpointing::automatic:
      p.mode = CheckpointMode::automatic;
      break;
    case Recipe::Checkpointing::on:
      p.mode = CheckpointMode::full;
      break;
    case Recipe::Checkpointing::off:
      p.mode = CheckpointMode::off;
      break;
    case Recipe::Checkpointing::selective:
      p.mode = CheckpointMode::selective;
      break;
    case Recipe::Checkpointing::sqrt:
      p.mode = CheckpointMode::sqrt;
      break;
    case Recipe::Checkpointing::every_n:
      p.mode = CheckpointMode::every_n;
      p.every_n = static_cast<int>(r.every_n);
      break;
  }
  p.save = r.selective_checkpointing;
  p.offload_inputs = r.activation_offloading;
  return p;
}

TrainOptions train_options(const Recipe& r) {
  TrainOptions o;
  o.trainer.dtype = dtype_of_recipe(r.dtype);
  o.trainer.checkpointing = checkpoint_policy(r);
  o.trainer.loss_chunk_bytes = static_cast<size_t>(r.loss_chunk_bytes);
  o.trainer.optimizer = {r.adam_beta1, r.adam_beta2, r.adam_epsilon, r.weight_decay, r.max_grad_norm};
  o.trainer.seed = static_cast<uint64_t>(r.seed);
  o.batches = {r.micro_batch_size.value_or(1), r.gradient_accumulation_steps, r.max_seq_length, r.sample_packing,
               static_cast<uint64_t>(r.seed),  r.longest_batch_first};
  o.lr.learning_rate = r.learning_rate;
  o.lr.scheduler = r.lr_scheduler == Recipe::LrScheduler::linear     ? LrScheduler::linear
                   : r.lr_scheduler == Recipe::LrScheduler::constant ? LrScheduler::constant
                                                                     : LrScheduler::cosine;
  o.warmup = r.warmup_steps;
  o.num_epochs = r.num_epochs;
  o.max_steps = r.max_steps.value_or(0);
  o.eval_steps = r.eval_steps.value_or(0);
  o.save_steps = r.save_steps.value_or(0);
  o.save_minutes = r.save_minutes;
  o.save_total_limit = r.save_total_limit;
  o.output_dir = r.output_dir;
  return o;
}

}  // namespace

QuantConfig quant_config(const Recipe& r) {
  return {r.quant_type == Recipe::QuantType::none ? QuantType::none : QuantType::nf4, r.double_quant};
}

DType dtype_of_recipe(Recipe::Dtype dtype) {
  return dtype == Recipe::Dtype::f32 ? DType::f32 : DType::bf16;
}

std::unique_ptr<Context> make_context(const std::string& device, std::optional<int64_t> num_threads) {
  ContextOptions o = choose_device(device, cuda_library()).options;
  o.num_threads = static_cast<int>(num_threads.value_or(0));
  return std::make_unique<Context>(o);
}

std::string device_text(const Context& c) {
  if (!c.backend().device_info) return str(c.device_name(), ", ", name_of(c.isa()), ", ", c.num_threads(), " threads");
  const DeviceInfo info = c.backend().device_info(c.device());
  return str(c.device_name(), ", ", info.name, ", ", size_text(info.memory_free), " free of ",
             size_text(info.memory_total));
}

std::string cuda_library() {
  const char* file = std::getenv("BANTAM_CUDA_LIBRARY");
  return file && *file ? file : "cuda";
}

std::shared_ptr<const Model> load_with_progress(const std::filesystem::path& path, const QuantConfig& quant,
                                                Context& context, bool quiet) {
  LoadOptions o{.quant = quant, .context = &context};
  const bool live = !quiet && isatty(STDERR_FILENO);
  int shown = -1;
  o.progress = [&](double fraction, const std::string& what) {
    if (quiet) return;
    const int percent = static_cast<int>(fraction * 100);
    if (shown < 0 && !live)
      std::fprintf(stderr, "%s: %s, once (kept in %s)\n", path.filename().c_str(), what.c_str(),
                   default_cache_dir().c_str());
    if (live && percent != shown)
      std::fprintf(stderr, "\r%s: %s: %3d %%", path.filename().c_str(), what.c_str(), percent);
    shown = percent;
  };
  auto model = load_model(path, o);
  if (live && shown >= 0) std::fprintf(stderr, "\n");
  return model;
}

namespace {
void choose_modules(Session& s, const Recipe& r) {
  s.lora = {.r = r.lora_r,
            .lora_alpha = r.lora_alpha,
            .lora_dropout = r.lora_dropout,
            .use_rslora = r.use_rslora,
            .target_modules = r.lora_target_modules};
  const auto linears = linear_modules(s.config);
  std::vector<std::string> paths;
  for (const auto& m : linears) paths.push_back(m.path);
  const auto targets = match_target_modules(s.lora.target_modules, paths);
  for (const auto& m : linears)
    if (std::find(targets.begin(), targets.end(), m.path) != targets.end()) s.modules.push_back(m);
}

void choose_context(Session& s, const Recipe& r, bool assume_device) {
  s.absent_device = assume_device && r.device.starts_with("cuda");
  s.context = make_context(s.absent_device ? "cpu" : r.device, r.num_threads);
  check_offloading(r.activation_offloading, s.absent_device || !s.context->backend().host_memory, r.device);
}

void clamp_length(Session& s, const Recipe& r, bool quiet) {
  if (r.max_seq_length > s.config.max_position_embeddings && !quiet)
    std::fprintf(stderr, "max_seq_length %lld is above the model's %lld, which is used\n",
                 static_cast<long long>(r.max_seq_length), static_cast<long long>(s.config.max_position_embeddings));
  s.options.batches.max_seq_length = std::min(r.max_seq_length, s.config.max_position_embeddings);
}
}  // namespace

namespace {
// A template of another model may end answers with what is no token here: the model learns no token to stop at.
void warn_of_end(const Session& s, const Recipe& r) {
  const auto is_chat = [](const SourceReport& source) {
    return source.type == DatasetType::chat || source.type == DatasetType::alpaca;
  };
  const auto& sources = s.train.report.sources;
  if (!s.chat_template || r.train_on_eos == TrainOnEos::none || std::none_of(sources.begin(), sources.end(), is_chat))
    return;
  const auto end = ChatEncoder(s.tokenizer, s.chat_template).end_of_turn();
  if (!end || end->ids.size() == 1) return;
  const char* advice = "name another chat_template, such as the one of the model";
  if (end->ids.empty()) {
    std::fprintf(
        stderr,
        "warning: the chat template writes nothing behind an answer, so that the model does not learn to stop; %s\n",
        advice);
  } else {
    std::fprintf(
        stderr,
        "warning: the chat template ends an answer with '%s', which is no token of this vocabulary (%zu tokens); %s\n",
        printable(end->text, 60).c_str(), end->ids.size(), advice);
  }
}

void read_data(Session& s, const Recipe& r, const CommandOptions& options, const std::string& today) {
  s.tokenizer = load_tokenizer(r.base_model);
  s.chat_template = load_chat_template(r.base_model, r.chat_template, today);
  DataOptions data;
  data.max_seq_length = s.options.batches.max_seq_length;
  data.excess_length_strategy = r.excess_length_strategy;
  data.max_excess_fraction = r.max_excess_fraction;
  data.mask = {r.train_on_inputs, r.roles_to_train, r.train_on_eos};
  data.max_malformed_rows = r.max_malformed_rows;
  data.normalize_newlines = r.normalize_newlines;
  data.num_threads = static_cast<int>(r.num_threads.value_or(0));
  if (r.dataset_prepared_path != "none")
    data.cache =
        r.dataset_prepared_path == "cache" ? default_cache_dir() / "tokens" : fs::path(r.dataset_prepared_path);
  const bool live = !options.quiet && isatty(STDERR_FILENO);
  bool shown = false;
  if (live) {
    data.progress = [&](int64_t rows) {
      std::fprintf(stderr, "\r\033[Kpreparing data: %s rows", grouped(rows).c_str());
      shown = true;
    };
  }
  const auto read = [&](const std::vector<DatasetSpec>& specs) {
    Dataset d = read_datasets(specs, s.tokenizer, data, s.chat_template);
    if (shown) std::fprintf(stderr, "\r\033[K");
    shown = false;
    if (!d.cache_problem.empty())
      std::fprintf(stderr, "warning: prepared data are not kept: %s\n", d.cache_problem.c_str());
    return d;
  };
  s.train = read(r.datasets);
  warn_of_end(s, r);
  if (!r.test_datasets.empty()) {
    s.eval = read(r.test_datasets);
  } else if (r.val_set_size > 0) {
    s.eval = split_off_validation(s.train, r.val_set_size, static_cast<uint64_t>(r.seed));
  }
  for (const Dataset* d : {&s.train, &s.eval}) {
    const int32_t least = d->samples.smallest_token(), most = d->samples.largest_token();
    if (least < 0 || most >= s.config.vocab_size)
      throw Error(ErrorCode::model,
                  str(r.base_model, ": the tokenizer gives id ", least < 0 ? least : most,
                      ", the model's vocabulary has ", s.config.vocab_size),
                  "tokenizer and weights are not of one model");
  }
}

}  // namespace

Session data_session(const Recipe& r, const CommandOptions& options, const std::string& today) {
  Session s;
  s.options = train_options(r);
  s.config = load_model_config(r.base_model);
  clamp_length(s, r, options.quiet);
  read_data(s, r, options, today);
#ifdef __GLIBC__
  // What preparing took goes back to the system: the plan that follows counts from here.
  malloc_trim(0);
#endif
  return s;
}

Session open_session(const Recipe& r, const CommandOptions& options, bool assume_device, const std::string& today) {
  // Before data are read; device: cpu is refused with the recipe.
  if (r.activation_offloading && r.device == "auto")
    check_offloading(true, !choose_device(r.device, cuda_library()).options.backend.empty(), "auto, here the CPU,");
  Session s = data_session(r, options, today);
  choose_context(s, r, assume_device);
  choose_modules(s, r);
  s.options.run_key = str("recipe ", recipe_run_key(r), ", data ", hex64(s.train.samples.hash()));
  s.options.resume_with_new_total = options.resume;
  s.options.base_model_name = !r.hf_base.empty()          ? r.hf_base
                              : !s.config.hf_base.empty() ? s.config.hf_base
                                                          : r.base_model;
  return s;
}

Session shape_session(const Recipe& r, const std::filesystem::path& config_json, bool assume_device) {
  Session s;
  s.options = train_options(r);
  std::ifstream in(config_json, std::ios::binary);
  if (!in) throw Error(ErrorCode::model, str("--config ", config_json.string(), ": cannot be read"));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  s.config = parse_model_config(text, config_json.string());
  clamp_length(s, r, false);
  choose_context(s, r, assume_device);
  choose_modules(s, r);
  return s;
}

void load_weights(Session& s, const Recipe& r, const CommandOptions& options) {
  s.model = load_with_progress(r.base_model, quant_config(r), *s.context, options.quiet);
  s.adapters.emplace(s.lora, s.modules, static_cast<uint64_t>(r.seed));
}

std::string time_text(double seconds) {
  char text[64];
  const auto s = static_cast<long long>(std::llround(seconds));
  if (seconds < 60)
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  else if (s < 3600)
    std::snprintf(text, sizeof text, "%lld min %lld s", s / 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%lld h %lld min", s / 3600, s / 60 % 60);
  return text;
}

}  // namespace bantam
