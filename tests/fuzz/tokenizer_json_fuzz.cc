// SPDX-License-Identifier: Apache-2.0
// Any bytes as tokenizer.json: a tokenizer or an Error, never a crash. With clang this is a libFuzzer target (seeds:
// the files that `bantam_tokenizer_json_fuzz --seeds DIR` of another build writes); otherwise a program of its own that
// damages the golden files, as text and as JSON: bantam_tokenizer_json_fuzz [ROUNDS] [SEED].
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "finetune/text/json_file.h"
#include "finetune/text/tokenizer_files.h"
#include "kernels/error.h"
#include "tokenizer_checks.h"

namespace {

using nlohmann::json;

int try_file(std::string_view bytes) {
  return bantam::fuzz::try_tokenizer([&] {
    return bantam::make_pipeline(bantam::read_tokenizer_json(bantam::parse_json(bytes, "fuzz"), {}, "fuzz"));
  });
}

}  // namespace

#ifdef BANTAM_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try_file({reinterpret_cast<const char*>(data), size});
  return 0;
}
#else

namespace {

std::vector<json> golden_files() {
  std::ifstream in(BANTAM_TESTS_DIR "/golden/tokenizer_golden.json", std::ios::binary);
  const json golden = json::parse(std::string{std::istreambuf_iterator<char>(in), {}});
  std::vector<json> out;
  for (const auto& c : golden.at("cases")) {
    json j = c.at("json");
    const auto model = c.at("model").get<std::string>();
    j["added_tokens"] = golden.at("added").at(model);
    j["model"] = golden.at("models").at(model);
    j["model"].update(c.at("options"));
    out.push_back(std::move(j));
  }
  return out;
}

std::string damaged_text(std::string s, std::mt19937& random) {
  for (unsigned k = 0; k <= random() % 3; ++k) {
    const size_t at = random() % s.size();
    switch (random() % 4) {
      case 0:
        s[at] = static_cast<char>(random());
        break;
      case 1:
        s[at] = "0123456789[]{}\",:-\\"[random() % 19];
        break;
      case 2:
        s.erase(at, random() % 9);
        break;
      default:
        s.insert(at, s.substr(random() % s.size(), random() % 40));
    }
  }
  return s;
}

// Another value at some place outside the vocabulary, or within it.
void damage(json& j, const std::vector<json>& files, std::mt19937& random) {
  json* at = &j;
  for (int depth = 0; depth < 8 && at->is_structured() && !at->empty() && random() % 5 != 0; ++depth) {
    auto it = at->begin();
    std::advance(it, static_cast<long>(random() % std::min<size_t>(at->size(), 40)));
    at = &*it;
  }
  static const char* const kValues[] = {
      "null",  "true",  "-1", "0",  "3",    "1e300", "99999999999", "18446744073709551615", "\"\"",
      "\"a\"", "\" \"", "[]", "{}", "[[]]", "[1,2]", "\"\\u0000\"", "\"(a|b)*$\"",          "\"\\u2581\""};
  switch (random() % 4) {
    case 0:
      *at = json::parse(kValues[random() % std::size(kValues)]);
      break;
    case 1: {  // a stage of another file
      const json& other = files[random() % files.size()];
      const char* const kStages[] = {"normalizer", "pre_tokenizer", "post_processor",
                                     "decoder",    "model",         "added_tokens"};
      const char* stage = kStages[random() % std::size(kStages)];
      if (other.contains(stage)) j[stage] = other[stage];
      break;
    }
    case 2:
      if (at->is_array() && !at->empty()) at->push_back((*at)[random() % at->size()]);
      if (at->is_object() && !at->empty()) at->erase(at->begin());
      break;
    default: {  // stages within themselves
      const json part = j.contains("normalizer") ? j["normalizer"] : json(nullptr);
      j["normalizer"] = {{"type", "Sequence"}, {"normalizers", {part, part, part}}};
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<json> files = golden_files();
  if (argc > 2 && std::string(argv[1]) == "--seeds") {
    std::filesystem::create_directories(argv[2]);
    for (size_t i = 0; i < files.size(); ++i) std::ofstream(bantam::str(argv[2], "/", i, ".json")) << files[i].dump();
    return 0;
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5000;
  std::mt19937 random(argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1u);
  int read = 0;
  for (int round = 0; round < rounds; ++round) {
    json j = files[random() % files.size()];
    if (round % 2 == 0) {
      read += try_file(damaged_text(j.dump(), random));
    } else {
      for (unsigned k = 0; k <= random() % 3 && j.is_object(); ++k) damage(j, files, random);
      read += try_file(j.dump(-1, ' ', false, json::error_handler_t::replace));
    }
  }
  std::printf("%d of %d damaged files were still read\n", read, rounds);
  return read > rounds / 50 && read < rounds ? 0 : 1;
}
#endif
