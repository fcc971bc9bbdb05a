// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "../finetune/model/model.h"
#include "../finetune/text/tokenizer.h"
#include "commands.h"
#include "session.h"

namespace bantam {

int quantize_command(const std::filesystem::path& model, const std::filesystem::path& out,
                     const QuantizeCommandOptions& options) {
  const ModelConfig config = load_model_config(model);
  if (is_quantized_folder(model)) throw Error(ErrorCode::usage, str(model.string(), ": is quantised already"));
  const auto source = open_model_files(model);
  check_tensors(config, *source, model.string());
  std::error_code ec;
  if (options.common.overwrite) std::filesystem::remove(out / "model.safetensors", ec);
  if (std::filesystem::exists(out / "model.safetensors", ec))
    throw Error(ErrorCode::usage, str(out.string(), ": holds a model already"),
                "name another folder, or pass --overwrite");
  const auto tokenizer = load_tokenizer(model);

  const auto context = make_context(options.device, options.num_threads);
  size_t device_bytes = 0;
  StoreOptions store;
  store.device = context.get();
  store.threads = static_cast<int>(options.num_threads.value_or(0));
  for (const auto& [name, content] : tokenizer->files()) store.files[name] = content;
  const bool live = !options.common.quiet && isatty(STDERR_FILENO);
  store.progress = [&](const StoreProgress& p) {
    device_bytes = p.device_bytes;
    if (live) std::fprintf(stderr, "\r%zu of %zu tensors", p.done, p.total);
  };
  const QuantConfig quant{options.quant_type == Recipe::QuantType::none ? QuantType::none : QuantType::nf4,
                          options.double_quant};
  store.files["config.json"] = with_quantization_config(config.to_json(), quant);
  const auto t0 = std::chrono::steady_clock::now();
  write_store(*source, quant, out, store);
  if (live) std::fprintf(stderr, "\n");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
  const size_t bytes = WeightStore::open(out)->bytes();
  const std::string where =
      device_bytes > 0 ? str(" on ", context->device_name(), ", with ", size_text(device_bytes), " of its memory") : "";
  if (options.common.json)
    std::printf("{\"folder\": \"%s\", \"bytes\": %zu, \"seconds\": %.3f, \"device\": \"%s\", \"device_bytes\": %zu}\n",
                out.c_str(), bytes, seconds, context->device_name().c_str(), device_bytes);
  else if (!options.common.quiet)
    std::printf("%s: %s in %s%s\n", out.c_str(), size_text(bytes).c_str(), time_text(seconds).c_str(), where.c_str());
  return 0;
}

}  // namespace bantam
