// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: every template of a golden file as it is, then mutations of them, the same ones
// each time. jinja_fuzz_test GOLDEN.json [MUTATIONS [SEED]]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::string& s) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(s.data()), s.size());
}

constexpr const char* kPieces[] = {"{{",
                                   "}}",
                                   "{%",
                                   "%}",
                                   "{%-",
                                   "-%}",
                                   "{#",
                                   "#}",
                                   "(",
                                   ")",
                                   "[",
                                   "]",
                                   "{",
                                   "}",
                                   "'",
                                   "\"",
                                   "\\",
                                   "|",
                                   ".",
                                   ",",
                                   ":",
                                   "=",
                                   "==",
                                   "<",
                                   "+",
                                   "-",
                                   "*",
                                   "%",
                                   "~",
                                   "\n",
                                   " ",
                                   "\xff",
                                   "é",
                                   "😀",
                                   " in ",
                                   " not ",
                                   " and ",
                                   " is ",
                                   " if ",
                                   " else ",
                                   "loop.",
                                   "ns.",
                                   "{% endif %}",
                                   "{% endfor %}",
                                   "{% raw %}",
                                   "{% endraw %}",
                                   "{% endmacro %}",
                                   "{% generation %}",
                                   "{% endgeneration %}",
                                   "9223372036854775807",
                                   "-1",
                                   "1e308",
                                   "none",
                                   "messages",
                                   "range(",
                                   "namespace(",
                                   "[::-1]",
                                   "| tojson(indent=2)",
                                   "| list",
                                   "{% set ns.x = ns %}",
                                   "{% set x %}",
                                   "{% endset %}",
                                   "{% break %}",
                                   "__class__"};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::vector<std::string> corpus;
  std::ifstream in(argv[1]);
  const auto golden = nlohmann::json::parse(in);
  for (const auto& c : golden.at("cases")) corpus.push_back(c.at("template"));
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 20000;
  std::mt19937 random(argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 7);
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (const auto& s : corpus) run(s);
  for (int i = 0; i < mutations; ++i) {
    std::string s = corpus[below(corpus.size())];
    for (size_t k = 1 + below(4); k > 0; --k) {
      const size_t at = below(s.size() + 1), n = below(std::min<size_t>(s.size() - at, 12) + 1);
      const std::string& other = corpus[below(corpus.size())];
      switch (below(6)) {
        case 0:
          s.erase(at, n);
          break;
        case 1:
          s.insert(at, kPieces[below(std::size(kPieces))]);
          break;
        case 2:
          s.replace(at, n, kPieces[below(std::size(kPieces))]);
          break;
        case 3:
          s.insert(at, s.substr(below(s.size() + 1), 1 + below(40)));
          break;
        case 4:
          s.insert(at, other.substr(below(other.size() + 1), 1 + below(40)));
          break;
        default:
          if (at < s.size()) s[at] = static_cast<char>(random());
      }
    }
    run(s);
  }
  std::printf("%zu templates, %d mutations\n", corpus.size(), mutations);
  return 0;
}
