// SPDX-License-Identifier: Apache-2.0
// Spans with the vocabularies of real models, where they are at hand.
#include <doctest/doctest.h>

#include <algorithm>

#include "finetune/text/tokenizer.h"
#include "shared_testing.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

namespace fs = std::filesystem;

fs::path shared(const std::string& name) {
  return shared_data("tokenizers/" + name);
}

// Texts of which both forms of one vocabulary think the same: without the sign for a space and the names of controls.
std::vector<std::string> texts() {
  std::vector<std::string> out;
  for (const auto& t : text_golden().at("texts")) out.push_back(t.get<std::string>());
  RandomText random(17);
  for (int i = 0; i < 300; ++i) out.push_back(random.utf8(random.next() % 60));
  std::erase_if(out, [](const std::string& t) { return contains(t, "\u2581") || contains(t, "<"); });
  return out;
}

}  // namespace

TEST_CASE("byte-level vocabularies of real models: the spans are the text, cut") {
  for (const char* name : {"gpt2/tokenizer.json", "llama3/tokenizer.model", "llama_cpp/ggml-vocab-gpt-2.gguf"}) {
    if (missing(shared(name))) continue;
    CAPTURE(name);
    const auto tokenizer = contains(name, ".gguf") ? load_tokenizer(shared(name)) : load_alone(shared(name));
    RandomText random(19);
    auto all = texts();
    for (int i = 0; i < 100; ++i) all.push_back(random.bytes(random.next() % 80));
    for (const std::string& text : all) {
      const Encoding e = tokenizer->encode_with_spans(text, kPlain);
      REQUIRE(e.ids == tokenizer->encode(text, kPlain));
      size_t at = 0;
      for (size_t i = 0; i < e.ids.size(); ++i) {
        REQUIRE(e.spans[i].begin == at);
        at = e.spans[i].end;
        CHECK(tokenizer->decode(std::span(e.ids).subspan(i, 1)) ==
              text.substr(e.spans[i].begin, at - e.spans[i].begin));
      }
      CHECK(at == text.size());
    }
  }
}

TEST_CASE("one vocabulary as tokenizer.json, as SentencePiece model and as GGUF has the same spans") {
  const fs::path json = shared("phi3/tokenizer.json");
  for (const char* name : {"llama2/tokenizer.model", "llama_cpp/ggml-vocab-llama-spm.gguf"}) {
    if (missing(json) || missing(shared(name))) continue;
    CAPTURE(name);
    const auto a = load_alone(json);
    const auto b = contains(name, ".gguf") ? load_tokenizer(shared(name)) : load_alone(shared(name));
    for (const std::string& text : texts()) {
      CAPTURE(text);
      const Encoding ours = a->encode_with_spans(text, kPlain), theirs = b->encode_with_spans(text, kPlain);
      CHECK(ours.ids == theirs.ids);
      CHECK((ours.spans == theirs.spans));
    }
  }
}
