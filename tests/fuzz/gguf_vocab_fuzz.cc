// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file with a vocabulary: a tokenizer or an Error, never a crash. With clang this is a libFuzzer
// target (seeds: the files that `bantam_gguf_vocab_fuzz --seeds DIR` of another build writes); otherwise a program of
// its own that damages small files, as bytes and as values: bantam_gguf_vocab_fuzz [ROUNDS] [SEED].
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "quant/quant_testing.h"
#include "tokenizer_checks.h"

namespace {

using namespace bantam;
using testing::raw;

int try_file(std::string_view bytes) {
  static const testing::TempDir dir;
  static const std::filesystem::path path = dir / "m.gguf";
  testing::write_file(path, std::string(bytes));
  return fuzz::try_tokenizer([&] { return load_tokenizer(path); });
}

}  // namespace

#ifdef BANTAM_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try_file({reinterpret_cast<const char*>(data), size});
  return 0;
}
#else

namespace {

struct Vocabulary {
  std::string model, pre = "default", architecture = "llama";
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::vector<std::pair<std::string, uint32_t> > ids = {{"bos", 1}, {"eos", 2}, {"unknown", 0}};
  int add_bos = -1, add_eos = -1, add_space = -1;  // -1: not said

  void add(const std::string& token, float score, int32_t type = 1) {
    tokens.push_back(token);
    scores.push_back(score);
    types.push_back(type);
  }
  std::string bytes(uint32_t version) const {
    testing::GgufBuilder b(version);
    const auto array = [&](uint32_t type, size_t n, const std::string& values) {
      return raw(type) + b.count(n) + values;
    };
    const auto flag = [&](const char* key, int value) {
      if (value >= 0) b.value(key, 7, std::string(1, static_cast<char>(value)));
    };
    b.value_text("general.architecture", architecture);
    b.value_text("tokenizer.ggml.model", model);
    if (!pre.empty()) b.value_text("tokenizer.ggml.pre", pre);
    b.value_text_array("tokenizer.ggml.tokens", tokens);
    if (!types.empty()) b.value("tokenizer.ggml.token_type", 9, array(5, types.size(), raw(types)));
    if (!scores.empty()) b.value("tokenizer.ggml.scores", 9, array(6, scores.size(), raw(scores)));
    if (!merges.empty()) b.value_text_array("tokenizer.ggml.merges", merges);
    for (const auto& [name, id] : ids) b.value_u32("tokenizer.ggml." + name + "_token_id", id);
    flag("tokenizer.ggml.add_bos_token", add_bos);
    flag("tokenizer.ggml.add_eos_token", add_eos);
    flag("tokenizer.ggml.add_space_prefix", add_space);
    return b.bytes();
  }
};

Vocabulary sentence_pieces() {
  Vocabulary v;
  v.model = "llama";
  v.add("<unk>", 0, 2), v.add("<s>", 0, 3), v.add("</s>", 0, 3);
  for (int b = 0; b < 256; ++b) {
    static constexpr char kHex[] = "0123456789ABCDEF";
    v.add(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">", 0, 6);
  }
  v.add("\u2581t", -1), v.add("he", -2), v.add("\u2581the", -3), v.add("\u2581a", -4), v.add("<tool>", 0, 4);
  for (const char* c : {"\u2581", "t", "h", "e", "a", "r"}) v.add(c, -10);
  return v;
}

Vocabulary byte_level(const char* pre) {
  Vocabulary v;
  v.model = "gpt2";
  v.pre = pre;
  v.add("<unk>", 0, 3), v.add("<s>", 0, 3), v.add("</s>", 0, 3);
  for (uint32_t b = 0, other = 256; b < 256; ++b) {  // GPT-2's letters for bytes
    const bool same = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const uint32_t c = same ? b : other++;
    v.add(c < 0x80 ? std::string(1, static_cast<char>(c))
                   : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))},
          0);
  }
  for (const char* m : {"t h", "th e", "\u0120 the", "\u0120 r", "i v", "\u0120r iv", "e r"}) {
    v.merges.push_back(m);
    std::string token = m;
    token.erase(token.find(' '), 1);
    v.add(token, 0);
  }
  v.add("<tool>", 0, 4);
  v.scores.clear();
  return v;
}

std::vector<Vocabulary> vocabularies() {
  std::vector<Vocabulary> out = {sentence_pieces()};
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "smollm", "starcoder"}) {
    out.push_back(byte_level(pre));
  }
  return out;
}

std::string damaged_bytes(std::string s, std::mt19937& random) {
  for (unsigned k = 0; k <= random() % 3; ++k) {
    const size_t at = random() % s.size();
    switch (random() % 5) {
      case 0:
        s[at] = static_cast<char>(random());
        break;
      case 1: {  // a count or a length
        static const uint64_t kNumbers[] = {0,          1,         255,        0x7FFFFFFF,
                                            0xFFFFFFFF, INT64_MAX, UINT64_MAX, uint64_t{1} << 32};
        const std::string number = raw(kNumbers[random() % std::size(kNumbers)]);
        s.replace(at, std::min<size_t>(8, s.size() - at), number.substr(0, 4 << (random() % 2)));
        break;
      }
      case 2:
        s.erase(at, random() % 9);
        break;
      case 3:
        if (random() % 4 == 0) s.resize(std::max<size_t>(at, 1));
        break;
      default:
        s.insert(at, s.substr(random() % s.size(), random() % 40));
    }
    if (s.empty()) s = "G";
  }
  return s;
}

void damage(Vocabulary& v, std::mt19937& random) {
  static const char* const kTokens[] = {"",       " ",    "<s>",    "the", "\u2581", "\u2581\u2581",     "<0x41>",
                                        "<0xZZ>", "\xFF", "\u0120", "a b", "x",      "\xF0\x9F\x98\x80", "(a|b)*$"};
  static const float kScores[] = {0, -1, 1, -1e30f, 1e38f, INFINITY, -INFINITY, NAN};
  const auto token = [&] {
    return random() % 9 == 0 ? std::string(random() % 3000, 'h') : std::string(kTokens[random() % std::size(kTokens)]);
  };
  const auto place = [&](size_t n) { return random() % std::max<size_t>(n, 1); };
  switch (random() % 11) {
    case 0:
      v.tokens[place(v.tokens.size())] = token();
      break;
    case 1:
      v.tokens.push_back(token());  // one more than types and scores
      break;
    case 2:
      v.add(token(), kScores[random() % std::size(kScores)], static_cast<int32_t>(random() % 8));
      break;
    case 3:
      if (!v.types.empty()) v.types[place(v.types.size())] = static_cast<int32_t>(random() % 9) - 1;
      break;
    case 4:
      if (!v.scores.empty()) v.scores[place(v.scores.size())] = kScores[random() % std::size(kScores)];
      break;
    case 5:
      v.merges.insert(v.merges.begin() + static_cast<long>(place(v.merges.size())), token() + " " + token());
      break;
    case 6:
      if (!v.merges.empty()) std::swap(v.merges[place(v.merges.size())], v.merges[place(v.merges.size())]);
      break;
    case 7:
      v.ids[place(v.ids.size())].second = random() % 2 == 0 ? static_cast<uint32_t>(random() % 300) : 0xFFFFFFFF;
      break;
    case 8:
      if (random() % 2 == 0) {
        v.types.resize(random() % 2 == 0 ? 0 : v.types.size() / 2);
      } else {
        v.scores.resize(random() % 2 == 0 ? 0 : v.scores.size() / 2);
      }
      break;
    case 9:
      v.add_bos = static_cast<int>(random() % 3) - 1, v.add_eos = static_cast<int>(random() % 3) - 1;
      v.add_space = static_cast<int>(random() % 4) - 1;
      break;
    default: {
      static const char* const kPres[] = {"", "default", "gpt-2", "llama-bpe", "qwen2", "tekken", "martian", "dbrx"};
      v.pre = kPres[random() % std::size(kPres)];
      if (random() % 4 == 0) v.model = v.model == "llama" ? "gpt2" : "llama";
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Vocabulary> files = vocabularies();
  if (argc > 2 && std::string(argv[1]) == "--seeds") {
    std::filesystem::create_directories(argv[2]);
    for (size_t i = 0; i < files.size(); ++i) {
      testing::write_file(std::filesystem::path(argv[2]) / str(i), files[i].bytes(i % 2 == 0 ? 3 : 1));
    }
    return 0;
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10000;
  std::mt19937 random(argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1u);
  for (const auto& v : files) {
    for (const uint32_t version : {1u, 2u, 3u}) {
      if (try_file(v.bytes(version)) != 1) return std::fprintf(stderr, "an undamaged file is refused\n"), 1;
    }
  }
  int read = 0;
  for (int round = 0; round < rounds; ++round) {
    Vocabulary v = files[random() % files.size()];
    if (round % 2 == 0) {
      read += try_file(damaged_bytes(v.bytes(1 + static_cast<uint32_t>(random() % 3)), random));
    } else {
      for (unsigned k = 0; k <= random() % 3; ++k) damage(v, random);
      read += try_file(v.bytes(3));
    }
  }
  std::printf("%d of %d damaged files were still read\n", read, rounds);
  return read > rounds / 50 && read < rounds ? 0 : 1;
}
#endif
