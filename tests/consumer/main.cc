// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a model from another program: consumer MODEL DATA.jsonl OUTPUT_DIR
#include <bantam/bantam.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  bantam::Context ctx({.num_threads = 2});
  const auto model = bantam::load_model(argv[1], {.in_memory = true});
  const auto tokenizer = bantam::load_tokenizer(argv[1]);
  const auto data = bantam::read_datasets({{.path = argv[2]}}, tokenizer, {.max_seq_length = 64});

  bantam::AdapterSet adapters({.r = 8, .lora_alpha = 16}, bantam::linear_modules(model->config), /*seed=*/1);
  bantam::TrainOptions options;
  options.batches.gradient_accumulation_steps = 1;
  options.batches.max_seq_length = 64;
  options.lr.learning_rate = 1e-2;
  options.max_steps = 30;
  options.output_dir = argv[3];
  const auto report = bantam::train(ctx, model, adapters, data, &data, options);

  std::printf("loss %.4f -> %.4f\n", report.first_eval_loss, report.last_eval_loss);
  return report.finished && report.last_eval_loss < 0.9 * report.first_eval_loss ? 0 : 1;
} catch (const bantam::Error& e) {
  std::fprintf(stderr, "%s\n%s\n", e.what(), e.hint().c_str());
  return static_cast<int>(e.code());
}
