// SPDX-License-Identifier: Apache-2.0
// What becomes of encoded rows: kept, cut, split or dropped, each counted and named.
#pragma once
#include <functional>
#include <string>

#include "dataset.h"
#include "row_encoder.h"

namespace bantam {

class RowCollector {
 public:
  using Keep = std::function<void(const Sample&)>;
  /// `keep` takes the samples, in the order of the rows. Error(usage) for options that make no sense.
  RowCollector(const DataOptions& options, Keep keep);

  /// Rows that follow are of this source. Error(usage) where excess_length_strategy does not suit its type.
  void begin_source(const DatasetSpec& spec, SourceReport source);
  SourceReport& source() { return report_.sources.back(); }

  void add(EncodedRow row, int64_t carriage_returns, const std::string& file, int64_t line);
  /// Error(data), as `error`, when more rows are malformed than allowed.
  void malformed(const std::exception& error, const std::string& hint, const std::string& file, int64_t line);

  /// Error(data) when too many rows were over the limit, or nothing is left to train.
  DataReport finish();

 private:
  void keep(const Sample& sample);
  void split(const Sample& sample, RowRef ref, const std::string& excess);
  void drop(RowRef ref, std::string what);
  void affect(RowRef ref, std::string what);

  const DataOptions& options_;
  Keep keep_;
  DataReport report_;
  RowRef first_too_long_;
  bool text_too_long_ = false;
};

/// Of the row (not the piece) that a sample comes from.
uint64_t row_key(uint64_t sample_id);

}  // namespace bantam
