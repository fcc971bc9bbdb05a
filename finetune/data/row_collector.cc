// SPDX-License-Identifier: Apache-2.0
#include "row_collector.h"

#include <algorithm>

#include "../../kernels/error.h"
#include "grouped.h"

namespace bantam {
namespace {

constexpr const char* kAdvice =
    "first turn gradient_checkpointing on (or leave it to auto) and raise max_seq_length; only then shorten rows "
    "(excess_length_strategy, max_excess_fraction)";

// A sample's id: dataset, row, piece.
constexpr int kPieceBits = 24, kRowBits = 32;
constexpr uint64_t kMostDatasets = uint64_t{1} << 8, kMostRows = uint64_t{1} << kRowBits,
                   kMostPieces = uint64_t{1} << kPieceBits;

}  // namespace

uint64_t row_key(uint64_t sample_id) {
  return sample_id >> kPieceBits;
}

RowCollector::RowCollector(const DataOptions& options, Keep keep) : options_(options), keep_(std::move(keep)) {
  if (options.max_seq_length < 2) {
    throw Error(ErrorCode::usage, str("max_seq_length ", options.max_seq_length, ": at least 2 tokens are needed"));
  }
  if (!(options.max_excess_fraction >= 0 && options.max_excess_fraction <= 1)) {
    throw Error(ErrorCode::usage, str("max_excess_fraction ", options.max_excess_fraction, ": expected 0 to 1"));
  }
  report_.max_seq_length = options.max_seq_length;
  report_.newlines_normalized = options.normalize_newlines;
}

void RowCollector::begin_source(const DatasetSpec& spec, SourceReport source) {
  if (report_.sources.size() == kMostDatasets) {
    throw Error(ErrorCode::usage, str("more than ", kMostDatasets, " datasets"));
  }
  if (options_.excess_length_strategy == ExcessLength::split && spec.type != DatasetType::text) {
    throw Error(ErrorCode::usage,
                str(spec.path, ": excess_length_strategy split is for datasets of type text only: a piece of ",
                    spec.type == DatasetType::prompt_completion ? "a completion" : "an answer",
                    " would stand without its prompt"),
                "use drop, truncate or raise, or a larger max_seq_length");
  }
  report_.sources.push_back(std::move(source));
}

void RowCollector::add(EncodedRow row, int64_t carriage_returns, const std::string& file, int64_t line) {
  DataReport& r = report_;
  Sample& s = row.sample;
  const auto n = static_cast<int64_t>(s.ids.size()), limit = options_.max_seq_length;
  const auto number = static_cast<uint64_t>(source().rows_read);
  if (number >= kMostRows) throw Error(ErrorCode::data, str(file, ":", line, ": more rows than 2^32"));
  s.id = static_cast<uint64_t>(r.sources.size() - 1) << (kRowBits + kPieceBits) | number << kPieceBits;
  ++r.rows_read;
  ++source().rows_read;
  r.longest_row = std::max(r.longest_row, n);
  r.lengths.add(n);
  r.carriage_returns += carriage_returns;
  r.control_texts += row.notes.control_texts;
  r.joined_prompts += row.notes.joined_prompts;
  RowRef ref{file, line, n, {}};
  if (row.bytes_without_token > 0) {
    const auto lost = static_cast<int64_t>(row.bytes_without_token);
    r.bytes_without_token += lost;
    affect(ref, str(grouped(lost), " bytes without a token left out"));
  }

  const bool too_long = n > limit;
  const std::string excess = too_long ? str(grouped(n), " tokens > max_seq_length ", grouped(limit)) : std::string();
  const int64_t targets = s.targets();
  if (too_long) {
    if (r.rows_too_long++ == 0) first_too_long_ = ref;
    text_too_long_ = text_too_long_ || source().type == DatasetType::text;
    switch (options_.excess_length_strategy) {
      case ExcessLength::split:
        return split(s, std::move(ref), excess);
      case ExcessLength::truncate:
        s.ids.resize(static_cast<size_t>(limit));
        s.trained.resize(static_cast<size_t>(limit));
        if (!s.weights.empty()) s.weights.resize(static_cast<size_t>(limit));
        r.supervised_tokens_lost += targets - s.targets();
        break;
      case ExcessLength::drop:
      case ExcessLength::raise:  // told at the end, with all counts
        r.supervised_tokens_lost += targets;
        return drop(std::move(ref), str("dropped: ", excess));
    }
  }
  if (s.targets() == 0) {
    ++r.rows_without_target;
    return drop(std::move(ref), too_long ? str("dropped: ", excess, "; no trained token is left after cutting")
                                         : std::string("dropped: no trained token"));
  }
  if (too_long) {
    ++r.rows_cut;
    r.tokens_lost += n - limit;
    affect(std::move(ref), str("cut: ", excess));
  }
  ++r.rows_kept;
  ++source().rows_kept;
  keep(s);
}

void RowCollector::malformed(const std::exception& error, const std::string& hint, const std::string& file,
                             int64_t line) {
  if (report_.rows_malformed == options_.max_malformed_rows) {
    if (options_.max_malformed_rows == 0) throw Error(ErrorCode::data, error.what(), hint);
    throw Error(ErrorCode::data,
                str(error.what(), "; ", grouped(report_.rows_malformed),
                    " malformed rows before it were left out, which is as many as max_malformed_rows allows"),
                hint);
  }
  ++report_.rows_malformed;
  ++report_.rows_read;
  ++source().rows_read;
  drop({file, line, 0, {}}, str("dropped: malformed: ", error.what()));
}

void RowCollector::split(const Sample& s, RowRef ref, const std::string& excess) {
  const auto limit = static_cast<size_t>(options_.max_seq_length);
  uint64_t piece = 0;
  for (size_t at = 0; at < s.ids.size(); at += limit, ++piece) {
    const size_t end = std::min(at + limit, s.ids.size());
    if (end - at < 2) {  // a single token has nothing before it to be predicted from
      report_.tokens_lost += 1;
      break;
    }
    if (piece >= kMostPieces) throw Error(ErrorCode::data, str(ref.file, ":", ref.line, ": more than 2^24 pieces"));
    const auto from = static_cast<std::ptrdiff_t>(at), to = static_cast<std::ptrdiff_t>(end);
    Sample part;
    part.id = s.id | piece;
    part.ids.assign(s.ids.begin() + from, s.ids.begin() + to);
    part.trained.assign(s.trained.begin() + from, s.trained.begin() + to);
    if (!s.weights.empty()) part.weights.assign(s.weights.begin() + from, s.weights.begin() + to);
    part.trained[0] = 0;
    keep(part);
  }
  ++report_.rows_kept;
  ++source().rows_kept;
  ++report_.rows_split;
  affect(std::move(ref), str("split into ", piece, ": ", excess));
}

void RowCollector::drop(RowRef ref, std::string what) {
  ++report_.rows_dropped;
  report_.tokens_lost += ref.tokens;
  affect(std::move(ref), std::move(what));
}

void RowCollector::affect(RowRef ref, std::string what) {
  if (report_.affected.size() == DataReport::kMostAffected) {
    ++report_.affected_not_listed;
    return;
  }
  ref.what = std::move(what);
  report_.affected.push_back(std::move(ref));
}

void RowCollector::keep(const Sample& s) {
  const auto n = static_cast<int64_t>(s.ids.size()), targets = s.targets();
  ++report_.samples;
  report_.tokens += n;
  report_.supervised_tokens += targets;
  report_.longest_kept = std::max(report_.longest_kept, n);
  source().tokens += n;
  source().supervised_tokens += targets;
  keep_(s);
}

DataReport RowCollector::finish() {
  DataReport& r = report_;
  const bool raise = options_.excess_length_strategy == ExcessLength::raise;
  const double share = static_cast<double>(r.rows_too_long) / static_cast<double>(std::max<int64_t>(r.rows_read, 1));
  if (r.rows_too_long > 0 &&
      (raise || (options_.excess_length_strategy != ExcessLength::split && share > options_.max_excess_fraction))) {
    const RowRef& first = first_too_long_;
    throw Error(
        ErrorCode::data,
        str(first.file, ":", first.line, ": ", grouped(r.rows_too_long), " of ", grouped(r.rows_read),
            " rows are over max_seq_length ", grouped(r.max_seq_length), " (the first here, with ",
            grouped(first.tokens), " tokens; the longest has ", grouped(r.longest_row), "); ",
            raise
                ? std::string("excess_length_strategy is raise")
                : str("max_excess_fraction ", options_.max_excess_fraction, " allows ",
                      grouped(static_cast<int64_t>(options_.max_excess_fraction * static_cast<double>(r.rows_read))))),
        str(text_too_long_ ? "excess_length_strategy: split cuts long texts into pieces; " : "",
            "to keep every row whole, max_seq_length ", r.longest_row, ": ", kAdvice));
  }
  if (r.supervised_tokens == 0) {
    throw Error(ErrorCode::data,
                str("no trained token in any of ", grouped(r.rows_read), " rows: ", grouped(r.rows_dropped),
                    " dropped, ", grouped(r.rows_too_long), " over max_seq_length ", grouped(r.max_seq_length), ", ",
                    grouped(r.rows_without_target), " without a trained token; the longest row has ",
                    grouped(r.longest_row), " tokens"),
                r.rows_too_long > 0 ? kAdvice : "are the completions empty?");
  }
  return std::move(report_);
}

}  // namespace bantam
