// SPDX-License-Identifier: Apache-2.0
// Reading speed on one thread, in MB/s of text: bantam_rows_bench [MEGABYTES | FILE...]. Without files, chat rows are
// written in every format. "cut": rows as they stand; "parse": and parsed. The best CPU time of several rounds counts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "finetune/rows_testing.h"

namespace {

using namespace bantam;

// CPU time of this thread: what else runs on the machine does not count.
double seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void measure(const std::filesystem::path& file) {
  std::printf("%-14s", file.filename().c_str());
  size_t rows = 0, bytes = 0;
  for (const bool parse : {false, true}) {
    double best = 1e9;
    for (int round = 0; round < 3; ++round) {
      rows = bytes = 0;
      const double start = seconds();
      const auto reader = open_rows(file);
      RawRow row;
      RowNotes notes;
      while (reader->next(row)) {
        ++rows;
        bytes += row.text.size() + 1;
        if (parse) reader->parse(row, notes);
      }
      best = std::min(best, seconds() - start);
    }
    std::printf("  %s %7.0f MB/s", parse ? "parse" : "cut", static_cast<double>(bytes) * 1e-6 / best);
  }
  std::printf("  %zu rows, %.1f MB\n", rows, static_cast<double>(bytes) * 1e-6);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::atoi(argv[1]) == 0) {
    for (int i = 1; i < argc; ++i) measure(argv[i]);
    return 0;
  }
  const size_t megabytes = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 100;
  testing::TempDir dir;
  std::string lines, array = "[\n", csv = "prompt,completion\n";
  for (uint64_t i = 0; lines.size() < megabytes * 1000000; ++i) {
    const std::string question = str("What is ", i, " times ", i * 7919 % 1000, ", and why does it matter?"),
                      answer = str("It is ", i * (i * 7919 % 1000), ".\nThat was \"easy\": ", i * i * 2654435761u,
                                   " would be harder; a longer answer says the same in more words than it needs to.");
    const nlohmann::ordered_json row = {{"messages",
                                         {{{"role", "user"}, {"content", question}},
                                          {{"role", "assistant"}, {"content", answer}},
                                          {{"role", "user"}, {"content", "Thank you."}},
                                          {{"role", "assistant"}, {"content", "You are welcome."}}}}};
    const std::string text = row.dump();
    lines += text + "\n";
    array += (i == 0 ? "" : ",\n") + text;
    std::string quoted = answer;
    for (size_t at = 0; (at = quoted.find('"', at)) != std::string::npos; at += 2) quoted.insert(at, 1, '"');
    csv += "\"" + question + "\",\"" + quoted + "\"\n";
  }
  testing::write_file(dir / "d.jsonl", lines);
  testing::write_file(dir / "d.jsonl.gz", testing::gzipped(lines));
  testing::write_file(dir / "d.jsonl.zst", testing::zstded(lines));
  testing::write_file(dir / "d.json", array + "]\n");
  testing::write_file(dir / "d.csv", csv);
  for (const char* name : {"d.jsonl", "d.jsonl.gz", "d.jsonl.zst", "d.json", "d.csv"}) measure(dir / name);
  return 0;
} catch (const bantam::Error& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
