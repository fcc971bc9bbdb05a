// SPDX-License-Identifier: Apache-2.0
// Reading: types, places, mistakes, contradictions, precedence.
#include "recipes/load.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "recipe_testing.h"
#include "recipes/resolved.h"

using namespace bantam;

namespace {
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
}  // namespace

TEST_CASE("activations are offloaded from a GPU only") {
  CHECK(recipe_of("activation_offloading: true\n").activation_offloading);
  CHECK(recipe_of("activation_offloading: true\ndevice: cuda:1\n").activation_offloading);
  CHECK_FALSE(recipe_of("").activation_offloading);
  CHECK(
      error_of("device: cpu\nactivation_offloading: yes\n") ==
      "r.yaml:6:1: activation_offloading: found true, but device cpu computes in host memory itself: leave it out, or "
      "use device: cuda");
  CHECK(error_of("device: cpu\nactivation_offloading: no\n") == "no error");
}

TEST_CASE("sections and a flat file mean the same") {
  const std::string sections =
      "model:\n  base_model: m\nlora:\n  lora_r: 8\n  lora_target_modules: [q_proj, v_proj]\ndata:\n  datasets:\n"
      "    - {path: d.jsonl, type: text}\nmemory:\n  gradient_checkpointing: selective\ntraining:\n  learning_rate: "
      "1e-4\n"
      "output:\n  output_dir: out\n";
  const std::string flat =
      "base_model: m\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\ndatasets: [{path: d.jsonl, type: text}]\n"
      "gradient_checkpointing: selective\nlearning_rate: 1e-4\noutput_dir: out\n";
  const Recipe a = parse_recipe(sections, "a").recipe, b = parse_recipe(flat, "b").recipe;
  CHECK(a == b);
  CHECK(a.lora_r == 8);
  CHECK(a.learning_rate == 1e-4);
  CHECK(a.gradient_checkpointing == Recipe::Checkpointing::selective);
  CHECK(a.datasets.at(0).type == Recipe::DatasetType::text);
  CHECK(a.lora_target_modules == std::vector<std::string>{"q_proj", "v_proj"});
}

TEST_CASE("numbers are numbers however they are written") {
  for (const char* text : {"1e-4", "1E-4", "1.e-4", ".1e-3", "\"1e-4\"", "'0.0001'"}) {
    CAPTURE(text);
    CHECK(recipe_of(std::string("learning_rate: ") + text).learning_rate == 1e-4);
  }
  CHECK(recipe_of("lora_alpha: 16").lora_alpha == 16);
  CHECK(recipe_of("seed: 012").seed == 12);
}

TEST_CASE("a wrong type names the place, what was found and what was expected") {
  CHECK(error_of("training:\n  learning_rate: fast\n") ==
        "r.yaml:6:18: training.learning_rate: found \"fast\", expected a number > 0 and <= 1");
  CHECK(error_of("lora_r: 8.0\n") == "r.yaml:5:9: lora_r: found \"8.0\", expected a whole number from 1 to 1024");
  CHECK(error_of("lora_r: [8]\n") == "r.yaml:5:9: lora_r: found a list, expected a whole number from 1 to 1024");
  CHECK(error_of("sample_packing: 1\n") ==
        "r.yaml:5:17: sample_packing: found \"1\", expected true or false (also yes, no, on, off)");
  CHECK(error_of("quant_type: nf5\n") ==
        "r.yaml:5:13: quant_type: found \"nf5\", expected one of nf4, none; did you mean nf4?");
  CHECK(error_of("loss_chunk_bytes: 10G\n") ==
        "r.yaml:5:19: loss_chunk_bytes: found \"10G\", expected a size >= 1KiB such as 512MiB or 10GB");
  CHECK(error_of("optimizer: {name: adamw}\n") ==
        "r.yaml:5:12: optimizer: found \"name: adamw\", expected one of adamw");
  CHECK(error_of("max_steps: none\n") == "no error");
  CHECK(error_of("max_steps: 0\n") ==
        "r.yaml:5:12: max_steps: found \"0\", expected a whole number from 1 to 1e+12 or none");
}

TEST_CASE("ranges, at their ends") {
  const std::pair<const char*, const char*> cases[] = {{"lora_r: 1024", "lora_r: 1025"},
                                                       {"lora_r: 1", "lora_r: 0"},
                                                       {"lora_dropout: 0", "lora_dropout: -0.1"},
                                                       {"lora_dropout: 0.999", "lora_dropout: 1"},
                                                       {"lora_alpha: 0.5", "lora_alpha: 0"},
                                                       {"max_seq_length: 8", "max_seq_length: 7"},
                                                       {"max_excess_fraction: 1", "max_excess_fraction: 1.01"},
                                                       {"micro_batch_size: 1", "micro_batch_size: 0"},
                                                       {"learning_rate: 1", "learning_rate: 0"},
                                                       {"num_epochs: 0.5", "num_epochs: 0"},
                                                       {"adam_beta1: 0", "adam_beta1: 1"},
                                                       {"adam_epsilon: 1e-12", "adam_epsilon: 0"},
                                                       {"max_grad_norm: 0", "max_grad_norm: -1"},
                                                       {"save_total_limit: 1", "save_total_limit: 0"},
                                                       {"seed: 0", "seed: -1"},
                                                       {"quant_block_size: 64", "quant_block_size: 128"},
                                                       {"num_threads: auto", "num_threads: 0"},
                                                       {"memory_limit: 1MiB", "memory_limit: 1000"},
                                                       {"warmup_steps: 0", "warmup_steps: -1"},
                                                       {"warmup_steps: 10", "warmup_steps: 1.5"},
                                                       {"val_set_size: 0.5", "val_set_size: 2.5"},
                                                       {"eval_steps: 100\nval_set_size: 1", "eval_steps: 0"},
                                                       {"save_steps: 0.25", "save_steps: 1e300.5"},
                                                       {"logging_steps: 1", "logging_steps: 0"}};
  for (const auto& [good, bad] : cases) {
    CAPTURE(good);
    CAPTURE(bad);
    CHECK(error_of(good) == "no error");
    CHECK(contains(error_of(bad), "expected"));
  }
}

TEST_CASE("text stays as written") {
  for (const char* text : {"no", "1:30", "012", "2026-11-29", "1e4"}) {
    CAPTURE(text);
    CHECK(recipe_of(std::string("hf_base: ") + text).hf_base == text);
  }
  const Recipe r = recipe_of("test_datasets: [{path: e.jsonl, field_prompt: no, field_completion: 012}]");
  CHECK(r.test_datasets.at(0).field_prompt == "no");
  CHECK(r.test_datasets.at(0).field_completion == "012");
}

TEST_CASE("sizes in a recipe") {
  const Recipe r = recipe_of("memory_limit: 10GiB\nmemory_reserve: 1000000\nloss_chunk_bytes: 64 MB\n");
  CHECK(r.memory_limit == int64_t{10} << 30);
  CHECK(r.memory_reserve == 1000000);
  CHECK(r.loss_chunk_bytes == 64000000);
}

TEST_CASE("unknown keys name the nearest one, at any depth") {
  CHECK(error_of("learning_rte: 1e-4\n") == "r.yaml:5:1: learning_rte: unknown key, did you mean learning_rate?");
  CHECK(error_of("lora:\n  lora_rankk: 4\n") == "r.yaml:6:3: lora.lora_rankk: unknown key, did you mean lora_rank?");
  CHECK(error_of("trainig:\n  lr: 1\n") == "r.yaml:5:1: trainig: unknown key, did you mean training?");
  CHECK(error_of("qwertzuiop: [1]\n") == "r.yaml:5:1: qwertzuiop: unknown key");
  CHECK(error_of("test_datasets:\n  - {path: a, typ: text}\n") ==
        "r.yaml:6:15: test_datasets[0].typ: unknown key, did you mean type?");
  CHECK(error_of("gradient_checkpointing: selective\nselective_checkpointing: {sav: [a]}\n") ==
        "r.yaml:6:27: selective_checkpointing.sav: unknown key, did you mean save?");
}

TEST_CASE("a key in the wrong section names the right one") {
  CHECK(error_of("training:\n  lora_r: 8\n") ==
        "r.yaml:6:3: training.lora_r: found in the section training, expected in lora or at the top");
  CHECK(error_of("lora: 8\n") == "r.yaml:5:7: lora: found \"8\", expected the keys of the section lora");
}

TEST_CASE("a key given twice names both places") {
  CHECK(error_of("lora:\n  lora_r: 8\n  lora_r: 16\n") ==
        "r.yaml:7:3: lora_r: found the key a second time, the first is on line 6");
  CHECK(error_of("lora_r: 8\nlora:\n  lora_r: 8\n") ==
        "r.yaml:7:3: lora.lora_r: found a second value for lora_r, the first is lora_r on line 5");
  CHECK(error_of("lora_r: 8\nlora_rank: 8\n") ==
        "r.yaml:6:1: lora_rank: found a second value for lora_r, the first is lora_r on line 5");
  CHECK(error_of("train_on_inputs: true\nmask_prompt: true\n") ==
        "r.yaml:6:1: mask_prompt: found a second value for train_on_inputs, the first is train_on_inputs on line 5");
}

TEST_CASE("all errors of a file in one go, in its order") {
  CHECK(error_of("seed: x\nlora:\n  lora_r: 0\nlr: -1\n") ==
        "r.yaml:5:7: seed: found \"x\", expected a whole number >= 0\n"
        "r.yaml:7:11: lora.lora_r: found \"0\", expected a whole number from 1 to 1024\n"
        "r.yaml:8:5: lr: found \"-1\", expected a number > 0 and <= 1");
  std::string many;
  for (int i = 0; i < 30; ++i) many += str("unknownkey", i, ": 1\n");
  const std::string message = error_of(many);
  CHECK(std::count(message.begin(), message.end(), '\n') == 20);
  CHECK(contains(message, "\nand 10 more"));
}

TEST_CASE("what a recipe must say") {
  try {
    parse_recipe("lora_r: 8\n", "r.yaml");
    FAIL("no error");
  } catch (const Error& e) {
    const std::string message = e.what();
    CHECK(contains(message, "r.yaml: model.base_model: missing, expected a path"));
    CHECK(contains(message, "r.yaml: data.datasets: missing, expected a list of {path, type}, or paths"));
    CHECK(contains(message, "r.yaml: output.output_dir: missing, expected a path"));
    CHECK(contains(e.hint(), "config-schema"));
  }
  CHECK_THROWS_AS(parse_recipe("", "r.yaml"), const Error&);
  // One message for a key that is there, but wrong.
  try {
    parse_recipe("base_model:\ndatasets: []\noutput_dir: [x]\n", "r.yaml");
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) ==
          "r.yaml:1:1: base_model: found nothing, expected a path\n"
          "r.yaml:2:11: datasets: found an empty list, expected a list of {path, type}, or paths\n"
          "r.yaml:3:13: output_dir: found a list, expected a path");
  }
  CHECK(contains(error_of("- a\n"), "not valid YAML"));
}

TEST_CASE("settings that contradict each other are refused") {
  CHECK(error_of("gradient_accumulation_steps: 4\neffective_batch_size: 8\n") ==
        "r.yaml:6:1: effective_batch_size: contradicts gradient_accumulation_steps on line 5, keep one of the two");
  CHECK(error_of("test_datasets: [e.jsonl]\nval_set_size: 10\n") ==
        "r.yaml:6:1: val_set_size: contradicts test_datasets on line 5, keep one of the two");
  CHECK(error_of("test_datasets: [e.jsonl]\nval_set_size: 0\n") == "no error");
  CHECK(error_of("selective_checkpointing: {save: [attention]}\n") ==
        "r.yaml:5:1: selective_checkpointing: only with gradient_checkpointing: selective");
  CHECK(error_of("micro_batch_size: 3\neffective_batch_size: 8\n") ==
        "r.yaml:6:1: effective_batch_size: found 8, expected a multiple of micro_batch_size, 3");
  CHECK(
      contains(error_of("quant_type: none\ndouble_quant: true\n"), "double_quant: found true, but quant_type is none"));
  CHECK(!recipe_of("quant_type: none\n").double_quant);
  CHECK(!recipe_of("double_quant: true\n", {{"--quant-type", "quant_type", "none"}}).double_quant);
  CHECK(contains(error_of("quant_type: none\n", {{"--double-quant", "double_quant", "true"}}),
                 "--double-quant: found true"));
  CHECK(contains(error_of("eval_strategy: no\nval_set_size: 10\n"), "eval_strategy: contradicts val_set_size"));
  CHECK(contains(error_of("test_datasets: [{path: e, type: text, field_prompt: q}]\n"),
                 "found field_prompt, which the type text does not read"));
}

TEST_CASE("effective_batch_size becomes accumulation steps") {
  const LoadedRecipe loaded = load_text("micro_batch_size: 2\neffective_batch_size: 16\n");
  CHECK(loaded.recipe.gradient_accumulation_steps == 8);
  CHECK(!loaded.recipe.effective_batch_size);
  CHECK(has_notice(loaded, "effective_batch_size 16 is micro_batch_size 2 x gradient_accumulation_steps 8"));
}

TEST_CASE("every way to say what is kept") {
  using Mode = Recipe::Checkpointing;
  const auto mode = [](const char* text) { return recipe_of(text).gradient_checkpointing; };
  CHECK(mode("") == Mode::automatic);
  CHECK(mode("gradient_checkpointing: auto") == Mode::automatic);
  CHECK(mode("gradient_checkpointing: off") == Mode::off);
  CHECK(mode("gradient_checkpointing: yes") == Mode::on);
  CHECK(mode("gradient_checkpointing: sqrt") == Mode::sqrt);
  for (const char* text : {"gradient_checkpointing: {every_n: 4}", "gradient_checkpointing: every_n:4",
                           "gradient_checkpointing: every_n=4", "gradient_checkpointing: \"every_n: 4\""}) {
    CAPTURE(text);
    const Recipe r = recipe_of(text);
    CHECK(r.gradient_checkpointing == Mode::every_n);
    CHECK(r.every_n == 4);
    CHECK(to_yaml(r).find("gradient_checkpointing: {every_n: 4}") != std::string::npos);
    CHECK(parse_recipe(to_yaml(r), "again.yaml").recipe.every_n == 4);
  }
  CHECK(recipe_of("", {{"--gradient-checkpointing", "gradient_checkpointing", "every_n: 3"}}).every_n == 3);
  CHECK(error_of("gradient_checkpointing: every_n\n") ==
        "r.yaml:5:25: gradient_checkpointing: found \"every_n\", expected {every_n: layers}, for example {every_n: 2}");
  for (const char* number : {"0", "x", "-1", "1.5", ""}) {
    CAPTURE(number);
    CHECK(contains(error_of(str("gradient_checkpointing: {every_n: ", number, "}\n")),
                   "expected every_n: a whole number of layers, from 1"));
  }
  CHECK(contains(error_of("gradient_checkpointing: {every: 2}\n"), "found \"every: 2\", expected one of auto, true"));
  const Recipe r = recipe_of("gradient_checkpointing: selective\nselective_checkpointing: {save: [attention, q]}\n");
  CHECK(r.selective_checkpointing == std::vector<std::string>{"attention", "q"});
}

TEST_CASE("micro_batch_size: auto waits for the plan, with effective_batch_size") {
  const Recipe r = recipe_of("micro_batch_size: auto\neffective_batch_size: 24\n");
  CHECK(!r.micro_batch_size);
  CHECK(r.effective_batch_size == 24);
  CHECK(contains(error_of("micro_batch_size: auto\n"), "found auto, which needs effective_batch_size"));
  CHECK(contains(error_of("micro_batch_size: auto\ngradient_accumulation_steps: 4\n"), "needs effective_batch_size"));
  CHECK(recipe_of("on_does_not_fit: adjust\n").on_does_not_fit == Recipe::DoesNotFit::adjust);
  CHECK(recipe_of("").longest_batch_first);
}

TEST_CASE("a value left empty is the default, said aloud") {
  const LoadedRecipe loaded = load_text("learning_rate:\nseed: ~\n");
  CHECK(loaded.recipe.learning_rate == 2e-4);
  CHECK(has_notice(loaded, "r.yaml:5:1: learning_rate: no value, the default (2e-4) is used"));
  CHECK(has_notice(loaded, "r.yaml:6:1: seed: no value"));
}

TEST_CASE("targets: names, a list, or a regular expression") {
  using List = std::vector<std::string>;
  CHECK(recipe_of("lora_target_modules: q_proj, v_proj").lora_target_modules == List{"q_proj", "v_proj"});
  CHECK(recipe_of("lora_target_modules: q_proj").lora_target_modules == List{"q_proj"});
  CHECK(recipe_of("lora_target_modules: '.*\\.(q|v)_proj'").lora_target_modules == List{".*\\.(q|v)_proj"});
  CHECK(recipe_of("lora_target_modules: all").lora_target_modules == List{"all-linear"});
  CHECK(contains(error_of("lora_target_modules: []"), "found a list, expected all-linear"));
}

TEST_CASE("datasets: paths, one mapping, a list of both") {
  const Recipe r =
      recipe_of("test_datasets: [a.jsonl, {path: b.jsonl, type: completion, split: train, weight: 1.0}]\n");
  REQUIRE(r.test_datasets.size() == 2);
  CHECK(r.test_datasets[0].type == Recipe::DatasetType::automatic);
  CHECK(r.test_datasets[1].type == Recipe::DatasetType::text);
  CHECK(recipe_of("type: text\n").datasets.at(0).type == Recipe::DatasetType::text);
  CHECK(recipe_of("test_datasets: {path: a.jsonl}\n").test_datasets.size() == 1);
  CHECK(error_of("test_datasets: [{type: text}]\n") ==
        "r.yaml:5:17: test_datasets[0].path: missing, expected a path in each of test_datasets");
  CHECK(contains(error_of("test_datasets: [{path: a, split: test}]\n"),
                 "[0].split: found \"test\": a local file has one split, train"));
  CHECK(contains(error_of("test_datasets: [{path: a, ds_type: parquet}]\n"), "[0].ds_type: found \"parquet\""));
  for (const char* weight : {"0", "-1", "x", "[1]", "1e9"}) {
    CAPTURE(weight);
    CHECK(contains(error_of(str("test_datasets: [{path: a, weight: ", weight, "}]\n")), "[0].weight: found "));
  }
  CHECK(
      contains(error_of("test_datasets: [{path: a, sample_by: word}]\n"), "expected one of document, paragraph, line"));
  CHECK(contains(error_of("test_datasets: [{path: a, field_mesages: m}]\n"), "did you mean field_messages?"));
  CHECK(contains(error_of("test_datasets: [{path: a, chat_template: chatml}]\n"), "write it beside datasets"));
  CHECK(contains(error_of("test_datasets: [{path: a, field: x, field_text: y}]\n"),
                 "found a second value for field_text, the first is on line "));
  CHECK(contains(error_of("test_datasets: [{path: a, message_property_mappings: {name: who}}]\n"),
                 "only role and content can be named"));
  CHECK(
      contains(error_of("test_datasets: [{path: a, roles: {user: x, assistant: [y, x]}}]\n"), "another role already"));
  CHECK(contains(error_of("test_datasets: [{path: a, type: alpaca, field_messages: m}]\n"),
                 "found field_messages, which the type alpaca does not read"));
}

TEST_CASE("datasets: every key, Axolotl's names too, and back from the resolved recipe") {
  const Recipe r = recipe_of(
      "test_datasets:\n"
      "  - {path: a.jsonl, type: sharegpt, weight: 0.5, field_messages: turns, field_tools: functions,\n"
      "     message_property_mappings: {role: who, content: said, weight: weight}, field_system: intro,\n"
      "     message_field_training: learn, field_weight: w, roles: {assistant: [bot, 'the model'], user: visitor}}\n"
      "  - {path: b.txt, type: completion, sample_by: line, ds_type: text, field: body}\n"
      "  - {path: c.csv, type: alpaca, field_instruction: q, field_input: i, field_output: o}\n");
  DatasetSpec chat;
  chat.path = (std::filesystem::current_path() / "a.jsonl").string();
  chat.type = DatasetType::chat, chat.weight = 0.5;
  chat.field_messages = "turns", chat.field_role = "who", chat.field_content = "said", chat.field_tools = "functions";
  chat.field_system = "intro", chat.field_train = "learn", chat.field_weight = "w";
  chat.roles = {{"bot", "assistant"}, {"the model", "assistant"}, {"visitor", "user"}};
  REQUIRE(r.test_datasets.size() == 3);
  CHECK(r.test_datasets[0] == chat);
  CHECK(r.test_datasets[1].sample_by == SampleBy::line);
  CHECK(r.test_datasets[1].field_text == "body");
  CHECK(r.test_datasets[2].field_instruction == "q");
  CHECK(parse_recipe(to_yaml(r), "resolved").recipe == r);
}

TEST_CASE("a chat template is a name or a file, whose path is made absolute") {
  CHECK(recipe_of("").chat_template == "tokenizer_default");
  CHECK(recipe_of("chat_template: chatml\n").chat_template == "chatml");
  CHECK(recipe_of("chat_template: my.jinja\n").chat_template ==
        (std::filesystem::current_path() / "my.jinja").string());
  const Recipe r = recipe_of("roles_to_train: [assistant, tool]\ntrain_on_eos: last\ndataset_prepared_path: none\n");
  CHECK(r.roles_to_train == std::vector<std::string>{"assistant", "tool"});
  CHECK(r.train_on_eos == TrainOnEos::last);
  CHECK(r.dataset_prepared_path == "none");
  CHECK(parse_recipe(to_yaml(r), "resolved").recipe == r);
  CHECK(recipe_of("dataset_prepared_path: prepared\n").dataset_prepared_path ==
        (std::filesystem::current_path() / "prepared").string());
}

TEST_CASE("without output_dir a run is named after model and data") {
  const auto name = [](const char* data) {
    const auto loaded = load_recipe({}, {{"--base-model", "base_model", "m"}, {"--data", "datasets", data}});
    return std::filesystem::path(loaded.recipe.output_dir).filename().string();
  };
  CHECK(name("d/rows.jsonl") == "m-rows");
  CHECK(name("d/rows.json.gz") == "m-rows");
  CHECK(name("d/v1.2.jsonl") == "m-v1.2");
  CHECK(name("d/*.jsonl") == "m-d");
  CHECK(name("d") == "m-d");
  CHECK(name("d/[ab]*.csv") == "m-ab");
}

TEST_CASE("overrides win over the file, the file over the defaults") {
  const std::string file = "lora_r: 8\nlearning_rate: 1e-4\n";
  const Recipe r = recipe_of(file, {{"--lora-r", "lora_r", "4"}, {"seed", "training.seed", "7"}});
  CHECK(r.lora_r == 4);
  CHECK(r.learning_rate == 1e-4);
  CHECK(r.seed == 7);
  CHECK(r.lora_alpha == 32);
  CHECK(recipe_of(file, {{"--lr", "lr", "3e-4"}}).learning_rate == 3e-4);
  CHECK(recipe_of("mask_prompt: true", {{"--train-on-inputs", "train-on-inputs", "true"}}).train_on_inputs);
  // A flag replaces the other half of an alternative as well.
  CHECK(recipe_of("gradient_accumulation_steps: 4", {{"--effective-batch-size", "effective_batch_size", "2"}})
            .gradient_accumulation_steps == 2);
  CHECK(recipe_of("effective_batch_size: 4", {{"--gradient-accumulation-steps", "grad_accum", "3"}})
            .gradient_accumulation_steps == 3);
  const Recipe t = recipe_of("val_set_size: 5", {{"--test-datasets", "test_datasets", "a.jsonl"}});
  CHECK(t.val_set_size == 0);
  CHECK(t.test_datasets.size() == 1);
  const LoadedRecipe c = load_text("gradient_checkpointing: selective\nselective_checkpointing: {save: [q]}\n",
                                   {{"--no-gradient-checkpointing", "gradient_checkpointing", "false"}});
  CHECK(c.recipe.selective_checkpointing.empty());
  CHECK(has_notice(c, "selective_checkpointing is not used"));
}

TEST_CASE("errors of overrides speak of the flag") {
  CHECK(error_of("", {{"--lora-r", "lora_r", "x"}}) == "--lora-r: found \"x\", expected a whole number from 1 to 1024");
  CHECK(error_of("", {{"--set lorar", "lorar", "1"}}) == "--set lorar: unknown key, did you mean lora_r?");
  CHECK(error_of("", {{"lr", "lora.lr", "1"}}) == "lr: found the section lora, expected training");
  CHECK(error_of("", {{"--lr", "lr", "1e-3"}, {"--learning-rate", "learning_rate", "1e-4"}}) ==
        "--learning-rate: found a second value for learning_rate, the first is --lr");
  CHECK(contains(error_of("", {{"--set fsdp", "fsdp", "full"}}), "--set fsdp: not a key here"));
}

TEST_CASE("lists and mappings as overrides") {
  const Recipe r = recipe_of("", {{"--data", "data", "a.jsonl"},
                                  {"--data", "data", "b,c.jsonl"},
                                  {"--lora-target-modules", "lora_target_modules", "[q_proj,k_proj]"},
                                  {"--gradient-checkpointing", "gradient_checkpointing", "selective"},
                                  {"--set", "selective_checkpointing", "{save: [q]}"}});
  REQUIRE(r.datasets.size() == 2);
  CHECK(std::filesystem::path(r.datasets[1].path).filename() == "b,c.jsonl");
  CHECK(r.lora_target_modules.size() == 2);
  CHECK(r.selective_checkpointing == std::vector<std::string>{"q"});
  const Recipe s = recipe_of("", {{"datasets", "datasets", "[{path: x.jsonl, type: text, field_text: body}]"}});
  CHECK(s.datasets.at(0).field_text == "body");
  CHECK(contains(error_of("", {{"datasets", "datasets", "[{path: x"}}),
                 "datasets: found a list or mapping as a key, expected a name; is a bracket not closed?"));
}

TEST_CASE("paths become absolute, relative to the current directory") {
  const Recipe r = recipe_of("resume_from_checkpoint: ./out/../ckpt/\n");
  const auto here = std::filesystem::current_path();
  CHECK(r.base_model == (here / "m").string());
  CHECK(r.datasets.at(0).path == (here / "d.jsonl").string());
  CHECK(r.output_dir == (here / "out").string());
  CHECK(r.resume_from_checkpoint == (here / "ckpt").string());
  CHECK(recipe_of("resume_from_checkpoint: no").resume_from_checkpoint == "false");
  CHECK(recipe_of("resume_from_checkpoint: true").resume_from_checkpoint == "auto");
  if (const char* home = std::getenv("HOME"))
    CHECK(recipe_of("resume_from_checkpoint: ~/x").resume_from_checkpoint == std::string(home) + "/x");
}

TEST_CASE("without a recipe file") {
  const Recipe r =
      load_recipe({}, {{"--base-model", "base_model", "models/tiny/"}, {"--data", "data", "rows/my.data.jsonl"}})
          .recipe;
  CHECK(r.output_dir == (std::filesystem::current_path() / "outputs/tiny-my.data").string());
  const Recipe g = load_recipe({}, {{"--base-model", "base_model", "tiny.Q4_1.gguf"},
                                    {"--data", "data", "d.jsonl"},
                                    {"--output-dir", "output_dir", "/o"}})
                       .recipe;
  CHECK(g.output_dir == "/o");
  try {
    load_recipe({}, {{"--data", "data", "d.jsonl"}});
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) == "--base-model: missing, expected a path");
  }
}

TEST_CASE("files that are no recipe") {
  try {
    load_recipe("no/such/recipe.yaml");
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::usage);
    CHECK(contains(e.what(), "no/such/recipe.yaml"));
  }
  try {
    load_recipe(std::filesystem::temp_directory_path());
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(contains(e.what(), "found a folder, expected a recipe file"));
  }
}
