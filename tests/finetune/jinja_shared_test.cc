// SPDX-License-Identifier: Apache-2.0
// Real chat templates against what Jinja2 made of them, where they are at hand.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "finetune/text/jinja/jinja.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

namespace fs = std::filesystem;

fs::path folder() {
  return fs::path(BANTAM_SHARED_DATA) / "chat_templates";
}

// Golden spans count code points.
size_t code_points(std::string_view s) {
  size_t n = 0;
  for (const char c : s) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace

TEST_CASE("jinja: every real template and conversation renders, or raises, as Jinja2 does") {
  if (!fs::exists(folder() / "golden_renderings.jsonl")) {
    MESSAGE("skipped, not here: " << folder().string());
    return;
  }
  const auto cases = ordered_json::parse(read_file(folder() / "golden_cases.json"));
  JinjaOptions options;
  options.clock = [] {
    std::tm t{};
    t.tm_year = 125, t.tm_mon = 2, t.tm_mday = 9, t.tm_hour = 14, t.tm_min = 5, t.tm_sec = 7;
    return t;
  };
  std::istringstream lines(read_file(folder() / "golden_renderings.jsonl"));
  size_t texts = 0, errors = 0, spans = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto row = ordered_json::parse(line);
    const std::string name = row.at("template"), which = row.at("case");
    CAPTURE(name);
    CAPTURE(which);
    ordered_json context = cases.at("defaults");
    context.update(cases.at("special_tokens"));
    context.update(cases.at("cases").at(which));
    if (cases.at("extra").contains(name)) context.update(cases.at("extra").at(name));
    const auto parsed = JinjaTemplate::parse(read_file(folder() / name), name);
    std::string message;
    Rendered out;
    try {
      out = parsed.render(JinjaValue::from_json(context), options);
    } catch (const Error& e) {
      message = e.what();
    }
    if (row.at("ok") == true) {
      ++texts;
      CHECK(message == "");
      CHECK(out.text == row.at("output").get<std::string>());
      ordered_json found = ordered_json::array();
      for (const auto& s : out.generation) {
        found.push_back({code_points(out.text.substr(0, s.begin)), code_points(out.text.substr(0, s.end))});
      }
      CHECK(found == row.value("generation_spans", ordered_json::array()));
      spans += found.size();
    } else {
      ++errors;
      const std::string want = row.at("message");
      CHECK(message.starts_with(name + ":"));
      CHECK(message.ends_with(": " + want));
    }
  }
  CHECK(texts > 300);
  CHECK(errors > 50);
  CHECK(spans > 10);
}

TEST_CASE("jinja: every real template parses") {
  if (!fs::exists(folder())) {
    MESSAGE("skipped, not here: " << folder().string());
    return;
  }
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() != ".jinja") continue;
    CAPTURE(entry.path().string());
    CHECK_NOTHROW(JinjaTemplate::parse(read_file(entry.path()), entry.path().filename().string()));
    ++count;
  }
  std::istringstream lines(read_file(folder() / "ollama_templates.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto row = ordered_json::parse(line);
    for (const auto& [name, source] : row.items()) {
      CAPTURE(name);
      CHECK_NOTHROW(JinjaTemplate::parse(source.get<std::string>(), name));
      ++count;
    }
  }
  CHECK(count > 60);
}
