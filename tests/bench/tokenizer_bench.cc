// SPDX-License-Identifier: Apache-2.0
// Encoding speed on one thread: bantam_tokenizer_bench MODEL FILE... ; the peer is tokenizer_bench.py.
// Each file is cut at line ends into documents of about 4 KiB; the best CPU time of several rounds counts, of encode()
// and of encode_with_spans().
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <vector>

#include "finetune/text/tokenizer.h"
#include "kernels/error.h"

namespace {

// CPU time of this thread: what else runs on the machine does not count.
double seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) return std::fputs("usage: bantam_tokenizer_bench MODEL FILE...\n", stderr), 2;
  const double loading = seconds();
  const auto tokenizer = bantam::load_tokenizer(argv[1]);
  std::printf("load %.2f s\n", seconds() - loading);
  for (int i = 2; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    std::vector<std::string_view> documents;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t end = rest.find('\n', std::min<size_t>(4096, rest.size()));
      documents.push_back(rest.substr(0, end == std::string_view::npos ? rest.size() : end + 1));
      rest.remove_prefix(documents.back().size());
    }
    double best = 1e9, best_spans = 1e9;
    size_t ids = 0, spans = 0;
    for (int round = 0; round < 7; ++round) {
      ids = spans = 0;
      const double start = seconds();
      for (const auto document : documents) ids += tokenizer->encode(document, {.add_special = false}).size();
      const double middle = seconds();
      for (const auto document : documents) {
        spans += tokenizer->encode_with_spans(document, {.add_special = false}).spans.size();
      }
      best = std::min(best, middle - start);
      best_spans = std::min(best_spans, seconds() - middle);
    }
    if (spans != ids) return std::fprintf(stderr, "%zu spans for %zu ids\n", spans, ids), 1;
    const double megabytes = static_cast<double>(text.size()) * 1e-6;
    std::printf("%s: %.1f MB, %zu ids, %.1f MB/s, with spans %.1f MB/s\n", argv[i], megabytes, ids, megabytes / best,
                megabytes / best_spans);
  }
  return 0;
} catch (const bantam::Error& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
