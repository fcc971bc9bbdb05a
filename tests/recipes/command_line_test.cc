// SPDX-License-Identifier: Apache-2.0
// Arguments to commands. The commands themselves are replaced by ones that remember what they were called with.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/error.h"
#include "recipes/cli.h"
#include "recipes/commands.h"
#include "recipes/help.h"
#include "recipes/key_table.h"
#include "recipes/load.h"

namespace bantam {
namespace {

struct Call {
  std::string command;
  Recipe recipe;
  CommandOptions options;
  PlanCommandOptions plan;
  int64_t steps = 0;
  QuantizeCommandOptions quantize;
  GenerateCommandOptions generate;
  TokenizeCommandOptions tokenize;
  InspectCommandOptions inspect;
};
Call last;
std::string failure;  ///< what the command throws

int called(const char* command) {
  last.command = command;
  if (failure == "device") throw Error(ErrorCode::device, "no device", "look for one");
  if (failure == "std") throw std::logic_error("a slip");
  return 0;
}

struct Run {
  int code;
  std::string out, err;
};

Run run(const std::vector<std::string>& args) {
  last = {};
  std::ostringstream out, err;
  const int code = run_program(args, out, err);
  return {code, out.str(), err.str()};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A folder with a model, rows and a recipe.
struct Files {
  std::filesystem::path path = std::filesystem::temp_directory_path() / str("bantam_command_line_", getpid());
  std::string model = (path / "model").string(), data = (path / "d.jsonl").string(),
              recipe = (path / "r.yaml").string();
  Files() {
    std::filesystem::create_directories(path / "model");
    std::ofstream(data) << "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
    std::ofstream(recipe) << "base_model: " << model << "\ndatasets: [" << data
                          << "]\noutput_dir: " << (path / "out").string() << "\nlora_r: 8\nlearning_rate: 1e-4\n";
  }
  ~Files() { std::filesystem::remove_all(path); }
};

}  // namespace

int train_command(const Recipe& recipe, const CommandOptions& options) {
  last.recipe = recipe;
  last.options = options;
  return called("train");
}
int plan_command(const Recipe& recipe, const PlanCommandOptions& options) {
  last.recipe = recipe;
  last.options = options.common;
  last.plan = options;
  return called("plan");
}
int selftest_command(const Recipe& recipe, const SelftestCommandOptions& options) {
  last.recipe = recipe;
  last.options = options.common;
  last.steps = options.steps;
  return called("selftest");
}
int quantize_command(const std::filesystem::path&, const std::filesystem::path&,
                     const QuantizeCommandOptions& options) {
  last.quantize = options;
  return called("quantize");
}
int generate_command(const GenerateCommandOptions& options) {
  last.generate = options;
  return called("generate");
}
int doctor_command(const CommandOptions& options) {
  last.options = options;
  return called("doctor");
}
int preprocess_command(const Recipe& recipe, const CommandOptions& options) {
  last.recipe = recipe;
  last.options = options;
  return called("preprocess");
}
int tokenize_command(const TokenizeCommandOptions& options) {
  last.tokenize = options;
  return called("tokenize");
}
int inspect_command(const InspectCommandOptions& options) {
  last.inspect = options;
  return called("inspect");
}

TEST_CASE("flag over file over default") {
  const Files f;
  CHECK(run({"train", f.recipe}).code == 0);
  CHECK(last.command == "train");
  CHECK(last.recipe.lora_r == 8);
  CHECK(last.recipe.learning_rate == 1e-4);
  CHECK(last.recipe.lora_alpha == 32);
  CHECK(last.recipe.datasets.at(0).type == Recipe::DatasetType::prompt_completion);
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--learning-rate", "3e-4"},
                                               {"--learning_rate", "3e-4"},
                                               {"--learning-rate=3e-4"},
                                               {"--lr", "3e-4"},
                                               {"--set", "learning_rate=3e-4"},
                                               {"--set", "training.lr=3e-4"},
                                               {"learning_rate=3e-4"},
                                               {"training.learning_rate=3e-4"}}) {
    CAPTURE(args[0]);
    for (bool first : {false, true}) {
      // Flags may stand before the recipe; key=value stands after it.
      if (first && args[0][0] != '-') continue;
      std::vector<std::string> all = {"plan"};
      if (!first) all.push_back(f.recipe);
      all.insert(all.end(), args.begin(), args.end());
      if (first) all.push_back(f.recipe);
      const Run r = run(all);
      CAPTURE(r.err);
      CHECK(r.code == 0);
      CHECK(last.command == "plan");
      CHECK(last.recipe.learning_rate == 3e-4);
      CHECK(last.recipe.lora_r == 8);
    }
  }
}

TEST_CASE("checkpointing and other switches") {
  const Files f;
  using Mode = Recipe::Checkpointing;
  const auto mode = [&](const std::vector<std::string>& flags, bool recipe_first) {
    std::vector<std::string> args = {"train"};
    if (recipe_first) args.push_back(f.recipe);
    args.insert(args.end(), flags.begin(), flags.end());
    if (!recipe_first) args.push_back(f.recipe);
    const Run r = run(args);
    CAPTURE(r.err);
    REQUIRE(r.code == 0);
    return last.recipe.gradient_checkpointing;
  };
  for (bool first : {true, false}) {
    CHECK(mode({"--gradient-checkpointing"}, first) == Mode::on);
    CHECK(mode({"--gradient-checkpointing=selective"}, first) == Mode::selective);
    CHECK(mode({"--gradient_checkpointing", "selective"}, first) == Mode::selective);
    CHECK(mode({"--gradient-checkpointing", "false"}, first) == Mode::off);
    CHECK(mode({"--no-gradient-checkpointing"}, first) == Mode::off);
    CHECK(mode({"--no_gradient_checkpointing"}, first) == Mode::off);
    CHECK(mode({"--disable-gradient-checkpointing"}, first) == Mode::off);
    CHECK(mode({"--sample-packing", "false", "--max-seq-length", "64"}, first) == Mode::automatic);
    CHECK(!last.recipe.sample_packing);
    CHECK(last.recipe.max_seq_length == 64);
    CHECK(mode({"--gradient-checkpointing=sqrt"}, first) == Mode::sqrt);
    CHECK(mode({"--gradient-checkpointing=every_n:3"}, first) == Mode::every_n);
    CHECK(last.recipe.every_n == 3);
    mode({"--no-packing", "--train-on-inputs", "--load-in-4bit"}, first);
    CHECK(!last.recipe.sample_packing);
    CHECK(last.recipe.train_on_inputs);
  }
  const Run bad = run({"train", f.recipe, "--gradient-checkpointing=full"});
  CHECK(bad.code == 2);
  CHECK(contains(bad.err,
                 "error: --gradient-checkpointing: found \"full\", expected one of auto, true, false, selective"));
  CHECK(run({"train", f.recipe, "--sample-packing", "--no-sample-packing"}).code == 2);
}

TEST_CASE("every key and every alias is a flag") {
  const Files f;
  for (const KeySpec& key : key_table()) {
    std::vector<std::string> names = {key.name};
    for (const Alias& alias : key.aliases) names.push_back(alias.name);
    for (const std::string& name : names) {
      CAPTURE(name);
      // No value is right for all keys; a flag that is known complains of its value, not of itself.
      const Run r = run({"train", f.recipe, flag_of(name) + "=\x01"});
      CHECK(!contains(r.err, "unknown flag"));
      CHECK(run({"train", f.recipe, "--" + name + "=\x01"}).code == r.code);
    }
  }
}

TEST_CASE("without a recipe") {
  const Files f;
  CHECK(run({"train", "--base-model", f.model, "--data", f.data, "--data", f.data, "--max-steps", "-1"}).code == 0);
  CHECK(last.recipe.datasets.size() == 2);
  CHECK(std::filesystem::path(last.recipe.output_dir).filename() == "model-d");
  const Run none = run({"train"});
  CHECK(none.code == 2);
  CHECK(contains(none.err, "missing a recipe, or --base-model and --data"));
  CHECK(contains(run({"train", "--data", f.data}).err, "error: --base-model: missing"));
}

TEST_CASE("mistakes on the command line exit with 2 and name the nearest") {
  const Files f;
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"train", f.recipe, "--learning-rte", "1"},
       "error: --learning-rte: unknown flag, did you mean --learning-rate?"},
      {{"train", f.recipe, "--no-sample-paking"}, "did you mean --no-sample-packing?"},
      {{"train", f.recipe, "--lora-r", "x"}, "error: --lora-r: found \"x\", expected a whole number from 1 to 1024"},
      {{"train", f.recipe, "lora_r=x"}, "error: lora_r: found \"x\""},
      {{"train", f.recipe, "lorar=8"}, "error: lorar: unknown key, did you mean lora_r?"},
      {{"train", f.recipe, "--set", "lora_r"}, "--set: found \"lora_r\", expected key=value"},
      {{"train", f.recipe, "second.yaml"}, "found \"second.yaml\" after the recipe"},
      {{"train", f.recipe, "--lora-r"}, "--lora-r"},
      {{"train", f.recipe, "--lora-r", "4", "--lora-rank", "4"},
       "--lora-rank: found a second value for lora_r, the first is --lora-r"},
      {{"train", f.recipe, "--resume", "--overwrite"}, "contradict"},
      {{"train", f.recipe, "--flash-attention"}, "--flash-attention: not a flag here: it would have no effect"},
      {{"train", f.recipe, "--batch-size=4"}, "micro_batch_size"},
      {{"train", f.recipe, "--use-dora"}, "known, not available in this version"},
      {{"trian", f.recipe}, "error: \"trian\": unknown command, did you mean train?"},
      {{"generate", f.model}, "missing --prompt"},
      {{"generate", f.model, "--prompt", "x", "--temperature", "-1"},
       "--temperature: found \"-1\", expected a number from 0 to 100"},
      {{"generate", "--prompt", "x"}, "missing MODEL or RUN"},
      {{"generate", f.model, "--prompt", "x", "--top-p", "0"}, "--top-p"},
      {{"generate", f.model, "--promt", "x"}, "did you mean --prompt?"},
      {{"quantize", f.model}, "missing -o DIR"},
      {{"quantize", f.model, "a", "-o", "b"}, "one argument too many"},
      {{"--json", "train", f.recipe}, "found \"--json\" before the command"},
      {{"init", f.model}, "missing DATA"}};
  for (const auto& [args, part] : cases) {
    CAPTURE(part);
    const Run r = run(args);
    CAPTURE(r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, part));
    CHECK(r.err.substr(0, 7) == "error: ");
    CHECK(r.out.empty());
    CHECK(last.command.empty());
  }
}

TEST_CASE("errors keep their code and their hint") {
  const Files f;
  failure = "device";
  const Run r = run({"train", f.recipe, "--quiet"});
  failure = "std";
  const Run s = run({"train", f.recipe, "--quiet"});
  failure.clear();
  CHECK(r.code == 6);
  CHECK(r.err == "error: no device\n  hint: look for one\n");
  CHECK(s.code == 1);
  CHECK(contains(s.err, "a slip"));
  CHECK(run({"train", f.recipe, "--base-model", f.model + "x"}).code == 4);
  CHECK(run({"train", f.recipe, "--data", f.data + "x"}).code == 3);
  CHECK(run({"train", f.recipe + "x"}).code == 2);
}

TEST_CASE("plan for another machine or another model, and selftest") {
  const Files f;
  CHECK(run({"plan", f.recipe, "--assume-memory", "24GiB", "--assume-rate", "90 TFLOPS", "--svg", "p.svg"}).code == 0);
  CHECK(last.plan.assume_memory == int64_t{24} << 30);
  CHECK(last.plan.assume_rate == 9e13);
  CHECK(last.plan.svg == "p.svg");
  // Without a recipe, model or data: the shape alone; --config need not exist for the command line.
  CHECK(run({"plan", "--config", "c.json", "--max-seq-length", "8192"}).code == 0);
  CHECK(last.plan.config == "c.json");
  CHECK(last.recipe.max_seq_length == 8192);
  CHECK(run({"plan", f.recipe, "--config=c.json", "--lora-r", "4"}).code == 0);
  CHECK(last.recipe.lora_r == 4);
  CHECK(contains(run({"plan", f.recipe, "--assume-memory", "lots"}).err,
                 "--assume-memory: found \"lots\", expected a size such as 24GiB"));
  CHECK(contains(run({"plan", f.recipe, "--assume-rate", "-3T"}).err, "--assume-rate: found \"-3T\", expected FLOP/s"));
  CHECK(run({"train", f.recipe, "--assume-memory", "24GiB"}).code == 2);
  CHECK(run({"selftest", f.recipe, "--steps", "5", "--json"}).code == 0);
  CHECK(last.command == "selftest");
  CHECK(last.steps == 5);
  CHECK(last.options.json);
  CHECK(run({"selftest", f.recipe, "--steps", "0"}).code == 2);
}

TEST_CASE("notes go to standard error, unless quiet") {
  const Files f;
  CHECK(contains(run({"train", f.recipe, "--effective-batch-size", "8"}).err,
                 "note: effective_batch_size 8 is micro_batch_size 1 x gradient_accumulation_steps 8"));
  CHECK(run({"train", f.recipe, "--quiet", "--json"}).err.empty());
  CHECK(last.options.quiet);
  CHECK(last.options.json);
  CHECK(run({"train", f.recipe, "--resume"}).code == 0);
  CHECK(last.options.resume);
  CHECK(!last.options.overwrite);
}

TEST_CASE("validate") {
  const Files f;
  CHECK(run({"validate", f.recipe}).out == f.recipe + ": valid\n");
  const Run resolved = run({"validate", f.recipe, "--resolved", "--seed", "5"});
  CHECK(parse_recipe(resolved.out, "r").recipe.seed == 5);
  const auto json = nlohmann::json::parse(run({"validate", f.recipe, "--json"}).out);
  CHECK(json["valid"] == true);
  CHECK(json["fingerprint"].get<std::string>().size() == 16);
  const Run bad = run({"validate", f.recipe, "--json", "--lora-r", "0", "--seed", "x"});
  CHECK(bad.code == 2);
  const auto errors = nlohmann::json::parse(bad.out);
  CHECK(errors["valid"] == false);
  CHECK(errors["errors"].size() == 2);
  CHECK(run({"validate", f.recipe, "--base-model", "none"}).code == 4);
  CHECK(run({"validate", f.recipe, "--base-model", "none", "--no-files"}).code == 0);
}

TEST_CASE("doctor takes no arguments; generate takes a device") {
  CHECK(run({"doctor", "--json"}).code == 0);
  CHECK(last.command == "doctor");
  CHECK(last.options.json);
  CHECK(run({"doctor", "cuda"}).code == 2);
  const Files f;
  CHECK(run({"generate", f.model, "--prompt", "a", "--device", "cuda:1"}).code == 0);
  CHECK(last.generate.device == "cuda:1");
  CHECK(run({"generate", f.model, "--prompt", "a"}).code == 0);
  CHECK(last.generate.device == "auto");
}

TEST_CASE("init writes a recipe once") {
  const Files f;
  const std::string out = (f.path / "new.yaml").string();
  CHECK(run({"init", f.model, f.data, "--output", out}).code == 0);
  CHECK(run({"validate", out, "--quiet"}).code == 0);
  const Run again = run({"init", f.model, f.data, "--output", out});
  CHECK(again.code == 8);
  CHECK(contains(again.err, "exists"));
  CHECK(contains(again.err, "--overwrite"));
  CHECK(run({"init", f.model, f.data, "--output", out, "--overwrite"}).code == 0);
  CHECK(parse_recipe(run({"init", f.model, f.data, "--output", "-"}).out, "r").recipe.base_model == f.model);
}

TEST_CASE("preprocess, tokenize, inspect") {
  const Files f;
  CHECK(run({"preprocess", f.recipe, "--debug", "3", "--max-seq-length", "512"}).code == 0);
  CHECK(last.command == "preprocess");
  CHECK(last.options.debug_rows == 3);
  CHECK(last.recipe.max_seq_length == 512);
  CHECK(run({"train", f.recipe, "--debug", "2"}).code == 0);
  CHECK(last.options.debug_rows == 2);
  CHECK(run({"train", f.recipe}).code == 0);
  CHECK(last.options.debug_rows == 0);
  CHECK(contains(run({"preprocess", f.recipe, "--debug", "x"}).err, "--debug"));

  CHECK(run({"tokenize", f.model, "--text", "a b", "--no-special", "--parse-special", "--json"}).code == 0);
  CHECK(last.tokenize.model_or_run == f.model);
  CHECK(last.tokenize.text == "a b");
  CHECK(last.tokenize.no_special);
  CHECK(last.tokenize.parse_special);
  CHECK(last.tokenize.common.json);
  CHECK_FALSE(last.tokenize.chat);
  CHECK(run({"tokenize", f.model, "--chat", "--file", f.data, "--rows", "2"}).code == 0);
  CHECK(last.tokenize.chat);
  CHECK(last.tokenize.file == f.data);
  CHECK(last.tokenize.rows == 2);
  CHECK(run({"tokenize", f.model, "--chat-template", "chatml", "--text", "a"}).code == 0);
  CHECK(last.tokenize.chat);  // a template is for nothing else
  CHECK(last.tokenize.chat_template == "chatml");
  CHECK(contains(run({"tokenize", f.model, "--text", "a", "--file", "b"}).err, "contradict"));
  CHECK(contains(run({"tokenize"}).err, "missing MODEL or RUN"));

  CHECK(run({"inspect", f.model}).code == 0);
  CHECK_FALSE(last.inspect.only_prompt);
  CHECK(run({"inspect", f.model, "--prompt"}).code == 0);
  CHECK(last.inspect.only_prompt);
  CHECK(last.inspect.prompt.empty());
  CHECK(run({"inspect", f.model, "--prompt", "Why?", "--system", "Be brief."}).code == 0);
  CHECK(last.inspect.only_prompt);
  CHECK(last.inspect.prompt == "Why?");
  CHECK(last.inspect.system == "Be brief.");

  CHECK(run({"generate", f.model, "--prompt", "a", "--chat", "--system", "s"}).code == 0);
  CHECK(last.generate.chat);
  CHECK(last.generate.system == "s");
  CHECK(contains(run({"generate", f.model, "--prompt", "a", "--chat", "--raw"}).err, "contradict"));
}

TEST_CASE("generate and quantize") {
  const Files f;
  CHECK(run({"generate",
             f.model,
             "--prompt",
             "- x",
             "--max-new-tokens",
             "5",
             "--temperature",
             "0.5",
             "--top_p",
             "0.9",
             "--seed",
             "3",
             "--raw",
             "--dtype",
             "f32",
             "--quant-type",
             "none",
             "--num-threads",
             "2",
             "--adapter",
             "a"})
            .code == 0);
  const GenerateCommandOptions& g = last.generate;
  CHECK(g.model_or_run == f.model);
  CHECK(g.prompt == "- x");
  CHECK(g.max_new_tokens == 5);
  CHECK(g.temperature == 0.5);
  CHECK(g.top_p == 0.9);
  CHECK(g.seed == 3);
  CHECK(g.raw);
  CHECK(g.dtype == Recipe::Dtype::f32);
  CHECK(g.quant_type == Recipe::QuantType::none);
  CHECK(g.num_threads == 2);
  CHECK(g.adapter == "a");
  CHECK(run({"quantize", f.model, "-o", "out", "--no-double-quant", "--overwrite"}).code == 0);
  CHECK(!last.quantize.double_quant);
  CHECK(last.quantize.common.overwrite);
  CHECK(run({"quantize", f.model, "-o", "out"}).code == 0);
  CHECK(last.quantize.double_quant);
  CHECK(last.quantize.device == "auto");
  CHECK(run({"quantize", f.model, "-o", "out", "--device", "cuda:1"}).code == 0);
  CHECK(last.quantize.device == "cuda:1");
}

TEST_CASE("help and version") {
  CHECK(contains(run({"--version"}).out, "bantam 0."));
  const Run help = run({"train", "--help"});
  CHECK(help.code == 0);
  for (const KeySpec& key : key_table()) {
    CAPTURE(key.name);
    CHECK(contains(help.out, "\n    " + flag_of(key.name)) == key.has_field());
  }
  CHECK(contains(help.out, "Default: 2e-4."));
  for (const char* command : {"train", "plan", "quantize", "generate", "validate", "config-schema", "init", "doctor",
                              "preprocess", "tokenize", "inspect"}) {
    const Run r = run({command, "--help"});
    CAPTURE(command);
    CHECK(r.code == 0);
    for (const char* part : {"USAGE", "EXAMPLES", "EXIT CODES"}) CHECK(contains(r.out, part));
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 125);
  }
  CHECK(contains(run({"--help"}).out, "COMMANDS"));
  CHECK(run({}).code == 2);
  CHECK(nlohmann::json::parse(run({"config-schema"}).out).contains("properties"));
}

}  // namespace bantam
