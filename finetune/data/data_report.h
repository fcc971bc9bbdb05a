// SPDX-License-Identifier: Apache-2.0
// What became of the rows of a data set.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dataset_spec.h"
#include "length_counts.h"

namespace bantam {

struct RowRef {
  std::string file;
  int64_t line = 0;  ///< physical, from 1
  int64_t tokens = 0;
  std::string what;  ///< "dropped: 3,000 tokens > max_seq_length 2,048", ...
  bool operator==(const RowRef&) const = default;
};

/// One entry of `datasets`.
struct SourceReport {
  std::string path, format;  ///< "JSONL, gzip"
  DatasetType type = DatasetType::automatic;
  bool detected = false;  ///< the type, by the first row
  double weight = 1;
  int64_t files = 0, rows_read = 0, rows_kept = 0, tokens = 0, supervised_tokens = 0;
  bool operator==(const SourceReport&) const = default;
};

/// Printed before step 1 and written to data_report.json.
/// rows_read = rows_kept + rows_dropped. Cut and split rows are among the kept ones; malformed rows and rows without a
/// trained token (left after cutting) among the dropped ones.
struct DataReport {
  int64_t rows_read = 0, rows_kept = 0, rows_cut = 0, rows_dropped = 0, rows_split = 0, rows_without_target = 0;
  int64_t rows_malformed = 0;
  int64_t rows_too_long = 0;                                    ///< rows over max_seq_length, whatever became of them
  int64_t samples = 0;                                          ///< more than rows_kept where rows were split
  int64_t tokens = 0, supervised_tokens = 0, longest_kept = 0;  ///< of the samples
  int64_t tokens_lost = 0, supervised_tokens_lost = 0;          ///< to max_seq_length
  int64_t longest_row = 0, max_seq_length = 0;
  int64_t bytes_without_token = 0;  ///< of the texts; the vocabulary cannot say them
  int64_t carriage_returns = 0;     ///< inside of texts
  int64_t control_texts = 0;        ///< texts of control tokens inside of messages, which are plain text
  /// Answers of chat rows whose prompt has other tokens at its end when it is encoded alone, as it is when it is
  /// served.
  int64_t joined_prompts = 0;
  bool newlines_normalized = false;
  LengthCounts lengths;               ///< tokens of the rows that were read, before any was cut
  std::vector<SourceReport> sources;  ///< in the order of `datasets`
  /// Each malformed, cut, split or dropped row, and those with bytes that have no token, in file order; the first
  /// kMostAffected of them.
  std::vector<RowRef> affected;
  int64_t affected_not_listed = 0;
  static constexpr size_t kMostAffected = 100'000;

  bool operator==(const DataReport&) const = default;
  std::string to_json() const;
  /// Of to_json(). Error(data) where it is something else.
  static DataReport from_json(const std::string& json);
  /// A few lines for people; says to turn checkpointing on before cutting, where rows were hit.
  std::string summary() const;
};

/// Name of a type as recipes have it.
const char* name_of(DatasetType type);

}  // namespace bantam
