// SPDX-License-Identifier: Apache-2.0
// The same with the vocabularies of real models, where they are at hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "finetune/text/tokenizer.h"
#include "shared_testing.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

// The texts of ggml-vocab-test.inp and the ids of a .out file, which stand one text and one line of ids for each.
void check_ggml(const Tokenizer& tokenizer, const std::string& out_name) {
  const fs::path in = shared_data("tokenizers/llama_cpp/ggml-vocab-test.inp"),
                 out = shared_data("tokenizers/llama_cpp/" + out_name);
  if (missing(in) || missing(out)) return;
  const std::string texts = read_file(in), separator = "\n__ggml_vocab_test__\n";
  std::istringstream lines(read_file(out));
  size_t at = 0, count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const size_t end = texts.find(separator, at);
    REQUIRE(end != std::string::npos);
    const std::string text = texts.substr(at, end - at);
    at = end + separator.size();
    std::istringstream numbers(line);
    std::vector<int32_t> want;
    for (int32_t id = 0; numbers >> id;) want.push_back(id);
    CAPTURE(text);
    CHECK(ids_text(tokenizer.encode(text, kPlain)) == ids_text(want));
    CHECK(tokenizer.decode(want) == text);
  }
  CHECK(count > 40);
}

}  // namespace

TEST_CASE("vocabularies of real models give the ids of their reference") {
  const auto golden = json::parse(read_file(fs::path(BANTAM_TESTS_DIR) / "golden" / "text_shared_golden.json"));
  const auto& texts = text_golden().at("texts");
  for (const auto& entry : golden) {
    const fs::path path = shared_data("tokenizers/" + entry.at("file").get<std::string>());
    if (missing(path)) continue;
    const auto tokenizer = load_alone(path);
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      CAPTURE(path.string());
      CAPTURE(text);
      CHECK(ids_text(tokenizer->encode(text, kPlain)) == ids_text(entry.at("ids")[i].get<std::vector<int32_t>>()));
    }
  }
}

TEST_CASE("llama.cpp's texts: GPT-2 and Llama 2, as JSON, as SentencePiece and as GGUF") {
  for (const auto& [file, out] : {std::pair("llama_cpp/ggml-vocab-gpt-2.gguf", "ggml-vocab-gpt-2.out"),
                                  std::pair("llama_cpp/ggml-vocab-llama-spm.gguf", "ggml-vocab-llama-spm.out"),
                                  std::pair("llama_cpp/ggml-vocab-phi-3.gguf", "ggml-vocab-phi-3.out")}) {
    const fs::path path = shared_data(std::string("tokenizers/") + file);
    CAPTURE(file);
    if (!missing(path)) check_ggml(*load_tokenizer(path), out);
  }
  for (const auto& [file, out] : {std::pair("gpt2/tokenizer.json", "ggml-vocab-gpt-2.out"),
                                  std::pair("llama2/tokenizer.model", "ggml-vocab-llama-spm.out")}) {
    const fs::path path = shared_data(std::string("tokenizers/") + file);
    CAPTURE(file);
    if (!missing(path)) check_ggml(*load_alone(path), out);
  }
}

TEST_CASE("llama.cpp's texts: tiktoken files, and a SentencePiece vocabulary as tokenizer.json") {
  for (const auto& [file, out] : {std::pair("llama3/tokenizer.model", "ggml-vocab-llama-bpe.out"),
                                  std::pair("qwen/qwen.tiktoken", "ggml-vocab-qwen2.out"),
                                  std::pair("qwen/qwen.tiktoken", "ggml-vocab-deepseek-r1-qwen.out"),
                                  std::pair("phi3/tokenizer.json", "ggml-vocab-phi-3.out")}) {
    const fs::path path = shared_data(std::string("tokenizers/") + file);
    CAPTURE(file);
    if (!missing(path)) check_ggml(*load_alone(path), out);
  }
}

TEST_CASE("llama.cpp's texts: every split rule that a vocabulary is there for") {
  for (const char* name : {"command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "mpt",
                           "qwen2", "qwen35", "refact", "starcoder", "chameleon"}) {
    const fs::path path = shared_data(std::string("tokenizers/llama_cpp/ggml-vocab-") + name + ".gguf");
    CAPTURE(name);
    if (!missing(path)) check_ggml(*load_tokenizer(path), std::string("ggml-vocab-") + name + ".out");
  }
}

TEST_CASE("what is not read is named") {
  const std::pair<const char*, const char*> files[] = {
      {"tokenizers/tiny/torchtitan_tokenizer.json", "merges"},
      {"tokenizers/tiny/pytorch_test_hf_tokenizer.json", "needs token"},
      {"tokenizers/tiny/torchtune_tiktoken_small.model", "tiktoken"}};
  for (const auto& [name, part] : files) {
    if (missing(shared_data(name))) continue;
    CAPTURE(name);
    const std::string error = error_of([&] { load_alone(shared_data(name)); });
    CAPTURE(error);
    CHECK(contains(error, part));
  }
}

TEST_CASE("the vocabulary of a tiny story model") {
  const fs::path model = shared_data("models/tinyllamas-stories-260k-f32.gguf"),
                 golden = shared_data("models/stories260K_golden.json");
  if (missing(model) || missing(golden)) return;
  const auto tokenizer = load_tokenizer(model);
  const auto j = json::parse(read_file(golden));
  for (const auto& s : j.at("sequences")) {
    if (!s.contains("text")) continue;
    CHECK(ids_text(tokenizer->encode(s.at("text").get<std::string>())) ==
          ids_text(s.at("ids").get<std::vector<int32_t>>()));
  }
  CHECK(tokenizer->adds_bos());
}
