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

namespace {

using nlohmann::json;

const char* const kTexts[] = {"",
                              " ",
                              "the river  runs",
                              "<s>the</s> <tool> word",
                              "e\xCC\x81 \xEF\xAC\x81 A\xCC\x8A",
                              "\xE4\xBD\xA0\xE5\xA5\xBD 12 345",
                              "bad \xFF\xC0\xE2\x82",
                              "\xE2\x96\x81\xE2\x96\x81the\n\n\t",
                              "\xF0\x9F\x98\x80\xE2\x80\x8D\xF0\x9F\x91\xA9",
                              "Caf\xC3\xA9X day-- --"};

void check_spans(const bantam::Tokenizer& tokenizer, std::string_view text, const bantam::EncodeOptions& options) {
  const auto e = tokenizer.encode_with_spans(text, options);
  if (e.ids != tokenizer.encode(text, options) || e.spans.size() != e.ids.size()) std::abort();
  for (size_t i = 0; i < e.spans.size(); ++i) {
    const auto [begin, end] = e.spans[i];
    if (begin > end || end > text.size() || (i > 0 && begin < e.spans[i - 1].begin)) std::abort();
  }
}

// What came of it: 1 a tokenizer, 0 an Error. Anything else ends the program.
int try_file(std::string_view bytes) {
  try {
    const auto tokenizer =
        bantam::make_pipeline(bantam::read_tokenizer_json(bantam::parse_json(bytes, "fuzz"), {}, "fuzz"));
    for (const char* text : kTexts) {
      for (const bool parse : {false, true}) {
        try {
          const auto ids = tokenizer->encode(text, {.parse_special = parse});
          for (const int32_t id : ids) {
            if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
          }
          tokenizer->decode(ids, parse);
          check_spans(*tokenizer, text, {.parse_special = parse});
          const bantam::TextSpan plain[] = {{1, 3}, {4, 9}};
          check_spans(*tokenizer, text, {.parse_special = parse, .plain = plain});
        } catch (const bantam::Error& e) {
          if (e.code() != bantam::ErrorCode::data && e.code() != bantam::ErrorCode::model) std::abort();
        }
      }
      tokenizer->unencodable(text);
    }
    return 1;
  } catch (const bantam::Error& e) {
    if (e.code() != bantam::ErrorCode::model && e.code() != bantam::ErrorCode::data) std::abort();
    return 0;
  }
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
