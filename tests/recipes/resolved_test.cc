// SPDX-License-Identifier: Apache-2.0
#include "recipes/resolved.h"

#include <doctest/doctest.h>

#include "recipe_testing.h"

using namespace bantam;

namespace {

/// A recipe in which no key has its default.
Recipe unusual() {
  return recipe_of(
      "hf_base: no\ndtype: f32\ndevice: cuda:1\nnum_threads: 3\nquant_type: none\ndouble_quant: false\nlora_r: "
      "7\nlora_alpha: 0.1\n"
      "lora_dropout: 0.3333333333333333\nlora_target_modules: '.*\"\\(q|v)_proj'\nuse_rslora: true\ntype: text\n"
      "test_datasets: [{path: 'a b, c: #d.jsonl', type: prompt_completion, field_prompt: 'q: {}', field_completion: "
      "'1'}, e.jsonl]\n"
      "train_on_inputs: true\nmax_seq_length: 99\nexcess_length_strategy: raise\nmax_excess_fraction: "
      "0.5\nsample_packing: false\n"
      "gradient_checkpointing: selective\nselective_checkpointing: {save: [attention, "
      "'self_attn.q_proj']}\nmemory_limit: 3GB\n"
      "memory_reserve: 1\nactivation_offloading: true\nloss_chunk_bytes: 1MiB\nmicro_batch_size: "
      "3\neffective_batch_size: 15\nnum_epochs: "
      "0.5\nmax_steps: 11\n"
      "learning_rate: 1.2345678901234567e-5\nweight_decay: 0.01\nadam_beta1: 0.8\nadam_beta2: 0.95\nadam_epsilon: "
      "1e-6\n"
      "max_grad_norm: 0\nlr_scheduler: linear\nwarmup_steps: 5\nseed: 9223372036854775807\neval_steps: "
      "0.1\nsave_steps: 10\n"
      "save_minutes: 0\nsave_total_limit: 9\nresume_from_checkpoint: ck\nlogging_steps: 5\nreport_to: []\n");
}

}  // namespace

TEST_CASE("the resolved recipe is complete and reads back the same") {
  for (const Recipe& recipe : {recipe_of(""), unusual()}) {
    const std::string yaml = to_yaml(recipe, "resolved");
    CAPTURE(yaml);
    CHECK(yaml.substr(0, 11) == "# resolved\n");
    const LoadedRecipe again = parse_recipe(yaml, "resolved.yaml");
    CHECK(again.recipe == recipe);
    CHECK(to_yaml(again.recipe, "resolved") == yaml);
    CHECK(recipe_fingerprint(again.recipe) == recipe_fingerprint(recipe));
    for (const KeySpec& key : key_table()) {
      if (!key.has_field() || key.name == "effective_batch_size" || key.name == "selective_checkpointing") continue;
      CAPTURE(key.name);
      CHECK(yaml.find("\n  " + key.name + ":") != std::string::npos);
    }
  }
}

TEST_CASE("a recipe made by hand reads back too") {
  Recipe recipe;
  recipe.base_model = "/m";
  recipe.output_dir = "/o";
  recipe.datasets = {{.path = "/d.jsonl", .type = Recipe::DatasetType::text}};
  recipe.gradient_checkpointing = Recipe::Checkpointing::off;
  CHECK(parse_recipe(to_yaml(recipe), "r").recipe == recipe);
}

TEST_CASE("the fingerprint follows what changes results, and only that") {
  const Recipe base = recipe_of("");
  const std::string print = recipe_fingerprint(base);
  CHECK(print.size() == 16);
  for (const char* line :
       {"lora_r: 8", "seed: 1", "learning_rate: 1e-5", "test_datasets: [e.jsonl]", "max_seq_length: 64", "dtype: f32",
        "sample_packing: false", "micro_batch_size: 2", "quant_type: none", "num_epochs: 1", "max_steps: 4"}) {
    CAPTURE(line);
    CHECK(recipe_fingerprint(recipe_of(line)) != print);
  }
  for (const char* line : {"gradient_checkpointing: false", "loss_chunk_bytes: 1MiB", "num_threads: 2", "save_steps: 3",
                           "memory_limit: 1GiB", "logging_steps: 7", "resume_from_checkpoint: false", "hf_base: a/b"}) {
    CAPTURE(line);
    CHECK(recipe_fingerprint(recipe_of(line)) == print);
  }
  CHECK(recipe_fingerprint(recipe_of("", {{"--output-dir", "output_dir", "/elsewhere"}})) == print);
}

TEST_CASE("differences say what a resume may change") {
  const auto list = recipe_differences(
      recipe_of(""), recipe_of("lora_r: 8\nnum_epochs: 5\nloss_chunk_bytes: 64MiB\nresume_from_checkpoint: false\n",
                               {{"--output-dir", "output_dir", "/elsewhere"}}));
  REQUIRE(list.size() == 3);
  CHECK(list[0].key == "lora.lora_r");
  CHECK(list[0].before == "16");
  CHECK(list[0].after == "8");
  CHECK(list[0].changes_results);
  CHECK(list[0].resume == Resume::never);
  CHECK(list[1].key == "memory.loss_chunk_bytes");
  CHECK(list[1].after == "64MiB");
  CHECK(!list[1].changes_results);
  CHECK(list[1].resume == Resume::free);
  CHECK(list[2].key == "training.num_epochs");
  CHECK(list[2].resume == Resume::on_demand);
  CHECK(recipe_differences(unusual(), unusual()).empty());
}
