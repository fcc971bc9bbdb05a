// SPDX-License-Identifier: Apache-2.0
#include "dataset.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "../../kernels/error.h"
#include "../text/chat_template.h"
#include "../text/utf8.h"
#include "row_collector.h"
#include "shuffle.h"

namespace bantam {

namespace {
std::tm date(const std::string& text) {
  std::tm out{};
  if (text.empty()) {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &out);
  } else {
    int end = 0;
    const int read = std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &out.tm_year, &out.tm_mon, &out.tm_mday, &end);
    out.tm_year -= 1900, out.tm_mon -= 1;
    if (read != 3 || static_cast<size_t>(end) != text.size() || out.tm_mon < 0 || out.tm_mon > 11 || out.tm_mday < 1 ||
        out.tm_mday > 31) {
      throw Error(ErrorCode::usage, str("'", printable(text, 40), "' is no date such as 2026-11-30"));
    }
  }
  std::tm day{};  // without the time, and with the day of the week
  day.tm_year = out.tm_year, day.tm_mon = out.tm_mon, day.tm_mday = out.tm_mday;
  timegm(&day);
  return day;
}
}  // namespace

std::shared_ptr<const ChatTemplate> load_chat_template(const std::filesystem::path& model, const std::string& setting,
                                                       const std::string& today) {
  auto found = setting == ChatTemplate::kTokenizerDefault ? ChatTemplate::find(model)
                                                          : std::optional(ChatTemplate::resolve(setting, model));
  if (!found) return nullptr;
  found->set_today(date(today));
  return std::make_shared<const ChatTemplate>(*std::move(found));
}

std::string date_of(const ChatTemplate& chat_template) {
  if (!chat_template.uses_date() || !chat_template.today()) return {};
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &*chat_template.today())};
}

Dataset split_off_validation(Dataset& train, double rows, uint64_t seed) {
  const auto total = static_cast<int64_t>(train.samples.size());
  if (!(rows >= 0) || !std::isfinite(rows) || (rows >= 1 && rows != std::floor(rows))) {
    throw Error(ErrorCode::usage, str("val_set_size ", rows, ": expected a number of rows, or a fraction below 1"));
  }
  Dataset valid;
  valid.report.max_seq_length = train.report.max_seq_length;
  if (rows == 0) return valid;
  const double wanted = rows >= 1 ? rows : std::max(1.0, std::floor(rows * static_cast<double>(total)));
  if (wanted >= static_cast<double>(total)) {
    throw Error(ErrorCode::usage,
                str("val_set_size ", rows, " takes ", wanted, " of ", total, " samples and leaves none to train"),
                "lower val_set_size, or give test_datasets");
  }
  // Pieces of a row are neighbours: row i is samples starts[i] to before starts[i + 1].
  std::vector<uint32_t> starts, order;
  for (size_t i = 0; i < train.samples.size(); ++i) {
    if (i > 0 && row_key(train.samples.id(i)) == row_key(train.samples.id(i - 1))) continue;
    order.push_back(static_cast<uint32_t>(starts.size()));
    starts.push_back(static_cast<uint32_t>(i));
  }
  starts.push_back(static_cast<uint32_t>(train.samples.size()));
  SplitMix64 random(mix64(mix64(seed) ^ 0x76616C6964ull));  // apart from the streams of the epochs
  shuffle(order, random);
  // In drawn order, rows are taken whole until enough samples are there; the last row is never taken.
  std::vector<bool> taken(order.size(), false);
  int64_t count = 0;
  for (size_t i = 0; i + 1 < order.size() && count < static_cast<int64_t>(wanted); ++i) {
    taken[order[i]] = true;
    count += starts[order[i] + 1] - starts[order[i]];
  }
  std::vector<uint32_t> left, drawn;
  DataReport& r = valid.report;
  for (size_t row = 0; row + 1 < starts.size(); ++row) {
    int64_t tokens = 0;
    for (uint32_t i = starts[row]; i < starts[row + 1]; ++i) {
      (taken[row] ? drawn : left).push_back(i);
      if (!taken[row]) continue;
      const SampleView s = train.samples[i];
      const auto n = static_cast<int64_t>(s.ids.size());
      tokens += n;
      r.supervised_tokens += s.targets();
      r.longest_kept = std::max(r.longest_kept, n);
    }
    if (!taken[row]) continue;
    ++r.rows_kept;
    r.tokens += tokens;
    r.lengths.add(tokens);
  }
  if (drawn.empty()) {
    throw Error(ErrorCode::usage,
                str("val_set_size ", rows, ": the samples are pieces of one row and cannot be parted"));
  }
  r.rows_read = r.rows_kept;
  r.longest_row = r.longest_kept;
  r.samples = static_cast<int64_t>(drawn.size());
  valid.samples = train.samples.subset(std::move(drawn));
  train.samples = train.samples.subset(std::move(left));
  return valid;
}

}  // namespace bantam
