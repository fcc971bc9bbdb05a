// SPDX-License-Identifier: Apache-2.0
// Damaged recipes end in an Error, whatever the damage.
#include <doctest/doctest.h>

#include <random>

#include "recipe_testing.h"
#include "recipes/resolved.h"

using namespace bantam;

namespace {

const std::string kRecipe =
    "# a comment\nmodel: {base_model: ./m, dtype: bf16}\nlora:\n  lora_r: 8\n  lora_target_modules: [q_proj, "
    "'v_proj']\n"
    "data:\n  datasets: &d\n    - {path: d.jsonl, type: text, field_text: \"bo\\x64y\"}\n  val_set_size: 0.1\nmemory:\n"
    "  gradient_checkpointing: selective\n  selective_checkpointing: {save: [attention]}\n  memory_limit: 10GiB\n"
    "training: {learning_rate: 1.e-4, warmup_ratio: .1, max_steps: -1}\noutput:\n  output_dir: >-\n    ./out\n  "
    "report_to: [jsonl]\n"
    "flash_attention: true\n";

/// True when it was read; anything but an Error(usage) escapes and fails the test.
bool survives(const std::string& text) {
  try {
    const Recipe recipe = parse_recipe(text, "r.yaml").recipe;
    // What was accepted must also be written so that it is accepted again.
    CHECK(parse_recipe(to_yaml(recipe), "again").recipe == recipe);
    return true;
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::usage);
    CHECK(!std::string(e.what()).empty());
    return false;
  }
}

}  // namespace

TEST_CASE("every truncation") {
  REQUIRE(survives(kRecipe));
  int read = 0;
  for (size_t n = 0; n < kRecipe.size(); ++n) read += survives(kRecipe.substr(0, n));
  // Without output_dir there is no recipe, with it there is.
  CHECK(read > 0);
  CHECK(read < 100);
}

TEST_CASE("random mutations") {
  std::mt19937 random(7);
  const std::string pieces[] = {"{",     "}",      "[",     "]",    ": ", ",",  "\n",   "  ",
                                "&d ",   "*d",     "'",     "\"",   "|",  ">",  "- ",   "? ",
                                "#",     "!!str ", "<<",    "%",    "~",  "\t", "\xff", std::string(1, '\0'),
                                "1e999", "\\",     "---\n", "...\n"};
  int read = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = kRecipe;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.erase(at, 1 + random() % 8);
          break;
        case 1:
          text.insert(at, pieces[random() % std::size(pieces)]);
          break;
        case 2:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 3:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
      }
      if (text.empty()) text = "a";
    }
    CAPTURE(text);
    read += survives(text);
  }
  CHECK(read > 0);
}

TEST_CASE("random values for every key") {
  std::mt19937 random(8);
  const char* values[] = {"true",
                          "-1",
                          "0",
                          "1e308",
                          "1e-320",
                          "9223372036854775807",
                          "9223372036854775808",
                          "[]",
                          "{}",
                          "[[]]",
                          "{a: b}",
                          "''",
                          "~",
                          "none",
                          "auto",
                          "x",
                          "[1, {a: []}]",
                          "99999999999TiB",
                          "1.5",
                          "\"\\0\"",
                          "false",
                          "{save: x}",
                          "[{path: a}]",
                          "{path: [a]}",
                          "epoch"};
  for (const KeySpec& key : key_table()) {
    std::vector<std::string> names = {key.name};
    for (const Alias& alias : key.aliases) names.push_back(alias.name);
    for (const std::string& name : names) {
      for (const char* value : values) {
        CAPTURE(name);
        CAPTURE(value);
        std::string text = kBase;
        if (key.required) text.erase(text.find(key.name), text.find('\n', text.find(key.name)) - text.find(key.name));
        survives(text + name + ": " + value + "\n");
      }
    }
  }
}
