// SPDX-License-Identifier: Apache-2.0
#include "init.h"

#include <array>
#include <filesystem>

#include "../kernels/error.h"
#include "dataset_keys.h"
#include "key_table.h"
#include "values.h"

namespace bantam {
namespace {

/// What most people change, in the order of a recipe; all else is in the schema.
constexpr std::array kShown = {"base_model",
                               "chat_template",
                               "quant_type",
                               "double_quant",
                               "lora_r",
                               "lora_alpha",
                               "lora_dropout",
                               "lora_target_modules",
                               "datasets",
                               "val_set_size",
                               "train_on_inputs",
                               "max_seq_length",
                               "sample_packing",
                               "gradient_checkpointing",
                               "memory_limit",
                               "micro_batch_size",
                               "gradient_accumulation_steps",
                               "num_epochs",
                               "learning_rate",
                               "lr_scheduler",
                               "warmup_steps",
                               "seed",
                               "eval_steps",
                               "output_dir",
                               "save_steps"};

constexpr size_t kWidth = 110;

/// Words of `text` as comment lines.
std::string comment(const std::string& text) {
  std::string out, line = "  #";
  size_t start = 0;
  while (start < text.size()) {
    const size_t space = std::min(text.find(' ', start), text.size());
    if (line.size() + 1 + space - start > kWidth) {
      out += line + "\n";
      line = "  #";
    }
    line += " " + text.substr(start, space - start);
    start = space + 1;
  }
  return out + line + "\n";
}

std::string name_of_path(const std::string& path) {
  std::filesystem::path p = path;
  if (!p.has_filename()) p = p.parent_path();
  return p.extension() == ".gguf" ? p.stem().string() : p.filename().string();
}

}  // namespace

std::string init_recipe(const std::string& model, const std::string& data, Recipe::DatasetType type,
                        const std::string& recipe_name) {
  std::string out = str("# How much memory and time:  bantam plan ", recipe_name, "\n# Train:  bantam train ",
                        recipe_name, "\n# Any key can be set for one run:  bantam train ", recipe_name,
                        " --learning-rate 1e-4\n# All keys:  bantam config-schema\n");
  for (const std::string& section : sections()) {
    std::string body;
    for (const char* name : kShown) {
      const KeySpec& key = *find_key(name);
      if (key.section != section) continue;
      std::string help = key.help;
      if (key.type == KeyType::choice) help += " O" + expected(key).substr(1) + ".";
      // Without evaluation data it would only earn a note.
      const bool commented = key.name == "eval_steps";
      body += comment(help) + (commented ? "  # " : "  ") + key.name + ":";
      if (key.name == "base_model") {
        body += " " + quote_yaml(model) + "\n";
      } else if (key.name == "datasets") {
        body += str("\n    - {path: ", quote_yaml(data), ", type: ", dataset_types().at(static_cast<size_t>(type)).name,
                    "}\n");
      } else if (key.name == "output_dir") {
        body += " " + quote_yaml(str("./outputs/", name_of_path(model), "-", data_name(data))) + "\n";
      } else {
        body += " " + default_text(key) + "\n";
      }
    }
    if (!body.empty()) out += "\n" + section + ":\n" + body;
  }
  return out;
}

}  // namespace bantam
