// SPDX-License-Identifier: Apache-2.0
// Writes a tiny random Llama folder for end-to-end tests: make_model GOLDEN.json OUT [--untied]. The tokenizer is the
// golden's first byte-level one.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "finetune/model/model.h"
#include "finetune/text/tokenizer.h"
#include "quant/safetensors.h"
#include "tests/finetune/model_testing.h"

using namespace bantam;

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::filesystem::path out = argv[2];
  std::filesystem::create_directories(out);
  std::ifstream golden(argv[1]);
  const auto json = nlohmann::json::parse(golden);
  write_file_atomically(out / "tokenizer.json", json.at("byte_level").at(0).at("json").dump());
  write_file_atomically(out / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  ModelConfig c = testing::tiny_config(argc < 4 || std::strcmp(argv[3], "--untied") != 0);
  c.vocab_size = load_tokenizer(out)->vocab_size() + 3;  // spare rows beyond the tokenizer are normal
  c.max_position_embeddings = 256;
  write_file_atomically(out / "config.json", c.to_json());
  const auto weights = testing::random_weights(c, build_model_graph(c, DType::f32, nullptr), 11);
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const auto& [name, t] : weights) tensors.push_back({name, "F32", t.shape});
  SafetensorsWriter writer(out / "model.safetensors", tensors);
  size_t i = 0;
  for (const auto& [name, t] : weights) writer.write(i++, 0, std::span<const float>(t.values));
  writer.finish();
  return 0;
}
