// SPDX-License-Identifier: Apache-2.0
#include "dataset.h"

#include <algorithm>
#include <cmath>

#include "../../kernels/error.h"
#include "grouped.h"
#include "jsonl.h"
#include "shuffle.h"

namespace bantam {
namespace {

constexpr const char* kAdvice =
    "first turn gradient_checkpointing on (or leave it to auto) and raise max_seq_length; only then shorten rows "
    "(excess_length_strategy, max_excess_fraction)";

constexpr uint64_t kMostDatasets = uint64_t{1} << 8, kMostLines = uint64_t{1} << 32, kMostPieces = uint64_t{1} << 24;

uint64_t row_key(uint64_t sample_id) {
  return sample_id >> 24;
}

// Reads all files of one call into one report.
class Reader {
 public:
  Reader(const Tokenizer& tokenizer, const DataOptions& options) : tokenizer_(tokenizer), options_(options) {
    if (options.max_seq_length < 2) {
      throw Error(ErrorCode::usage, str("max_seq_length ", options.max_seq_length, ": at least 2 tokens are needed"));
    }
    if (!(options.max_excess_fraction >= 0 && options.max_excess_fraction <= 1)) {
      throw Error(ErrorCode::usage, str("max_excess_fraction ", options.max_excess_fraction, ": expected 0 to 1"));
    }
    if (tokenizer.eos_id() < 0) {
      throw Error(ErrorCode::model, "the tokenizer has no EOS token, which ends every row",
                  "name eos_token in tokenizer_config.json");
    }
    report().max_seq_length = options.max_seq_length;
  }

  void read(const DatasetSpec& spec, uint64_t index) {
    if (options_.excess_length_strategy == ExcessLength::split && spec.type != DatasetType::text) {
      throw Error(ErrorCode::usage,
                  str(spec.path,
                      ": excess_length_strategy split is for datasets of type text only: a piece of a "
                      "completion would stand without its prompt"),
                  "use drop, truncate or raise, or a larger max_seq_length");
    }
    JsonlReader in(spec.path);
    const int64_t before = report().rows_read;
    nlohmann::json row;
    while (in.next(row)) {
      ++report().rows_read;
      if (static_cast<uint64_t>(in.line()) >= kMostLines) {
        throw Error(ErrorCode::data, str(in.where(), ": more lines than 2^32"));
      }
      add(encode(row, spec, in), in, index << 56 | static_cast<uint64_t>(in.line()) << 24);
    }
    if (report().rows_read == before) {
      throw Error(ErrorCode::data, str(in.file(), ": no rows (", in.line(), " lines, all blank)"),
                  "each line is one JSON object");
    }
  }

  Dataset finish() {
    DataReport& r = report();
    const bool raise = options_.excess_length_strategy == ExcessLength::raise;
    const double share = static_cast<double>(r.rows_too_long) / static_cast<double>(std::max<int64_t>(r.rows_read, 1));
    if (r.rows_too_long > 0 &&
        (raise || (options_.excess_length_strategy != ExcessLength::split && share > options_.max_excess_fraction))) {
      const RowRef& first = first_too_long_;
      throw Error(ErrorCode::data,
                  str(first.file, ":", first.line, ": ", grouped(r.rows_too_long), " of ", grouped(r.rows_read),
                      " rows are over max_seq_length ", grouped(r.max_seq_length), " (the first here, with ",
                      grouped(first.tokens), " tokens; the longest has ", grouped(r.longest_row), "); ",
                      raise ? std::string("excess_length_strategy is raise")
                            : str("max_excess_fraction ", options_.max_excess_fraction, " allows ",
                                  grouped(static_cast<int64_t>(options_.max_excess_fraction *
                                                               static_cast<double>(r.rows_read))))),
                  str("to keep every row, max_seq_length ", r.longest_row, ": ", kAdvice));
    }
    out_.samples = samples_.finish();
    r.samples = static_cast<int64_t>(out_.samples.size());
    if (r.supervised_tokens == 0) {
      throw Error(ErrorCode::data,
                  str("no trained token in any of ", grouped(r.rows_read), " rows: ", grouped(r.rows_dropped),
                      " dropped, ", grouped(r.rows_too_long), " over max_seq_length ", grouped(r.max_seq_length), ", ",
                      grouped(r.rows_without_target), " without a trained token; the longest row has ",
                      grouped(r.longest_row), " tokens"),
                  r.rows_too_long > 0 ? kAdvice : "are the completions empty?");
    }
    return std::move(out_);
  }

 private:
  DataReport& report() { return out_.report; }

  Sample encode(const nlohmann::json& row, const DatasetSpec& spec, const JsonlReader& in) {
    Sample s;
    size_t lost = 0;
    const auto append = [&](const std::vector<int32_t>& ids, bool trained) {
      s.ids.insert(s.ids.end(), ids.begin(), ids.end());
      s.trained.resize(s.ids.size(), trained ? 1 : 0);
    };
    const auto encode_text = [&](const std::string& field, bool special) {
      const std::string& value = text_field(row, field, in);
      lost += tokenizer_.unencodable(value);
      try {
        auto ids = tokenizer_.encode(value, {.add_special = special, .parse_special = false});
        // EOS ends the row, not the prompt; it is added once, below.
        if (special && tokenizer_.adds_eos() && !ids.empty() && ids.back() == tokenizer_.eos_id()) ids.pop_back();
        return ids;
      } catch (const Error& e) {
        throw Error(e.code(), str(in.where(), ": ", field, ": ", e.what()), e.hint());
      }
    };
    if (spec.type == DatasetType::text) {
      append(encode_text(spec.field_text, true), true);
    } else {
      append(encode_text(spec.field_prompt, true), options_.train_on_inputs);
      append(encode_text(spec.field_completion, false), true);
    }
    append({tokenizer_.eos_id()}, true);
    s.trained[0] = 0;  // nothing stands before it
    if (lost > 0) {
      report().bytes_without_token += static_cast<int64_t>(lost);
      report().affected.push_back({in.file(), in.line(), static_cast<int64_t>(s.ids.size()),
                                   str(grouped(static_cast<int64_t>(lost)), " bytes without a token left out")});
    }
    return s;
  }

  void add(Sample s, const JsonlReader& in, uint64_t id) {
    DataReport& r = report();
    const auto n = static_cast<int64_t>(s.ids.size()), limit = options_.max_seq_length;
    r.longest_row = std::max(r.longest_row, n);
    RowRef ref{in.file(), in.line(), n, {}};
    const bool too_long = n > limit;
    const std::string excess = too_long ? str(grouped(n), " tokens > max_seq_length ", grouped(limit)) : std::string();
    s.id = id;
    if (too_long) {
      if (r.rows_too_long++ == 0) first_too_long_ = ref;
      switch (options_.excess_length_strategy) {
        case ExcessLength::split:
          split(std::move(s), std::move(ref), excess);
          return;
        case ExcessLength::truncate:
          s.ids.resize(static_cast<size_t>(limit));
          s.trained.resize(static_cast<size_t>(limit));
          break;
        case ExcessLength::drop:
        case ExcessLength::raise:  // told at the end, with all counts
          drop(std::move(ref), str("dropped: ", excess));
          return;
      }
    }
    if (s.targets() == 0) {
      ++r.rows_without_target;
      drop(std::move(ref), too_long ? str("dropped: ", excess, "; no trained token is left after cutting")
                                    : std::string("dropped: no trained token"));
      return;
    }
    if (too_long) {
      ++r.rows_cut;
      r.tokens_lost += n - limit;
      ref.what = str("cut: ", excess);
      r.affected.push_back(std::move(ref));
    }
    ++r.rows_kept;
    keep(std::move(s));
  }

  void split(Sample s, RowRef ref, const std::string& excess) {
    DataReport& r = report();
    const auto limit = static_cast<size_t>(options_.max_seq_length);
    uint64_t piece = 0;
    for (size_t at = 0; at < s.ids.size(); at += limit, ++piece) {
      const size_t end = std::min(at + limit, s.ids.size());
      if (end - at < 2) {  // a single token has nothing before it to be predicted from
        r.tokens_lost += 1;
        break;
      }
      if (piece >= kMostPieces) throw Error(ErrorCode::data, str(ref.file, ":", ref.line, ": more than 2^24 pieces"));
      Sample part;
      part.id = s.id | piece;
      part.ids.assign(s.ids.begin() + static_cast<int64_t>(at), s.ids.begin() + static_cast<int64_t>(end));
      part.trained.assign(s.trained.begin() + static_cast<int64_t>(at), s.trained.begin() + static_cast<int64_t>(end));
      part.trained[0] = 0;
      keep(std::move(part));
    }
    ++r.rows_kept;
    ++r.rows_split;
    ref.what = str("split into ", piece, ": ", excess);
    r.affected.push_back(std::move(ref));
  }

  void drop(RowRef ref, std::string what) {
    DataReport& r = report();
    ++r.rows_dropped;
    r.tokens_lost += ref.tokens;
    ref.what = std::move(what);
    r.affected.push_back(std::move(ref));
  }

  void keep(Sample s) {
    DataReport& r = report();
    const auto n = static_cast<int64_t>(s.ids.size());
    r.tokens += n;
    r.supervised_tokens += s.targets();
    r.longest_kept = std::max(r.longest_kept, n);
    samples_.add(s);
  }

  const Tokenizer& tokenizer_;
  const DataOptions& options_;
  Dataset out_;
  SampleWriter samples_;
  RowRef first_too_long_;
};

}  // namespace

Dataset read_datasets(const std::vector<DatasetSpec>& specs, const Tokenizer& tokenizer, const DataOptions& options) {
  if (specs.empty()) throw Error(ErrorCode::usage, "no dataset is named", "list at least one under datasets");
  if (specs.size() > kMostDatasets)
    throw Error(ErrorCode::usage, str(specs.size(), " datasets, at most ", kMostDatasets));
  Reader reader(tokenizer, options);
  for (size_t i = 0; i < specs.size(); ++i) reader.read(specs[i], i);
  return reader.finish();
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
  std::vector<uint64_t> keys;
  for (size_t i = 0; i < train.samples.size(); ++i) {
    const uint64_t key = row_key(train.samples.id(i));
    if (keys.empty() || keys.back() != key) keys.push_back(key);
  }
  SplitMix64 random(mix64(mix64(seed) ^ 0x76616C6964ull));  // apart from the streams of the epochs
  shuffle(keys, random);
  // In drawn order, rows are taken whole until enough samples are there; the last row is never taken.
  std::vector<std::pair<uint64_t, int64_t>> pieces;
  for (size_t i = 0; i < train.samples.size(); ++i) {
    const uint64_t key = row_key(train.samples.id(i));
    if (pieces.empty() || pieces.back().first != key) pieces.emplace_back(key, 0);
    ++pieces.back().second;
  }
  std::sort(pieces.begin(), pieces.end());
  std::vector<uint64_t> taken;
  int64_t count = 0;
  for (size_t i = 0; i + 1 < keys.size() && count < static_cast<int64_t>(wanted); ++i) {
    taken.push_back(keys[i]);
    count += std::lower_bound(pieces.begin(), pieces.end(), std::pair<uint64_t, int64_t>(keys[i], 0))->second;
  }
  std::sort(taken.begin(), taken.end());
  std::vector<uint32_t> left, held_out;
  uint64_t last = 0;
  for (size_t i = 0; i < train.samples.size(); ++i) {
    const uint64_t key = row_key(train.samples.id(i));
    if (!std::binary_search(taken.begin(), taken.end(), key)) {
      left.push_back(static_cast<uint32_t>(i));
      continue;
    }
    DataReport& r = valid.report;
    const int64_t n = train.samples.length(i);
    if (held_out.empty() || key != last) ++r.rows_kept;
    last = key;
    r.tokens += n;
    r.supervised_tokens += train.samples[i].targets();
    r.longest_kept = std::max(r.longest_kept, n);
    held_out.push_back(static_cast<uint32_t>(i));
  }
  valid.samples = train.samples.subset(std::move(held_out));
  valid.report.rows_read = valid.report.rows_kept;
  valid.report.longest_row = valid.report.longest_kept;
  valid.report.samples = static_cast<int64_t>(valid.samples.size());
  train.samples = train.samples.subset(std::move(left));
  if (valid.samples.empty()) {
    throw Error(ErrorCode::usage,
                str("val_set_size ", rows, ": the samples are pieces of one row and cannot be parted"));
  }
  return valid;
}

}  // namespace bantam
