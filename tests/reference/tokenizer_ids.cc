// SPDX-License-Identifier: Apache-2.0
// Ids and decoded text of many records, for compare_tokenizers.py.
//   bantam_tokenizer_ids MODEL RECORDS OUT [FILES]
// RECORDS: each a u32 length and so many bytes. OUT: for each record the ids without and with control tokens parsed,
// the first decoded without control tokens, and begin and end of each of the second's spans; all as a u32 count and the
// values. FILES: a folder for what the tokenizer writes of itself.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "finetune/text/tokenizer.h"
#include "kernels/error.h"

namespace {

template <class Values>
void put(std::ofstream& out, const Values& values) {
  const auto n = static_cast<uint32_t>(values.size());
  out.write(reinterpret_cast<const char*>(&n), sizeof n);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(n * sizeof values[0]));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return std::fputs("usage: bantam_tokenizer_ids MODEL RECORDS OUT [FILES]\n", stderr), 2;
  const auto tokenizer = bantam::load_tokenizer(argv[1]);
  if (argc > 4) {
    std::filesystem::create_directories(argv[4]);
    for (const auto& [name, content] : tokenizer->files()) {
      std::ofstream(std::filesystem::path(argv[4]) / name, std::ios::binary) << content;
    }
  }
  std::ifstream in(argv[2], std::ios::binary);
  const std::string data{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::ofstream out(argv[3], std::ios::binary);
  for (size_t at = 0; at + 4 <= data.size();) {
    uint32_t n = 0;
    std::memcpy(&n, data.data() + at, 4);
    const auto text = std::string_view(data).substr(at + 4, n);
    at += 4 + size_t{n};
    const auto plain = tokenizer->encode(text, {.add_special = false, .parse_special = false});
    put(out, plain);
    const auto parsed = tokenizer->encode_with_spans(text, {.add_special = false, .parse_special = true});
    put(out, parsed.ids);
    put(out, tokenizer->decode(plain));
    std::vector<uint32_t> ends;
    for (const auto& span : parsed.spans) {
      ends.push_back(static_cast<uint32_t>(span.begin));
      ends.push_back(static_cast<uint32_t>(span.end));
    }
    put(out, ends);
  }
  return out.flush() ? 0 : 1;
} catch (const bantam::Error& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
