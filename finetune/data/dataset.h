// SPDX-License-Identifier: Apache-2.0
// Datasets: files to tokenised samples with a mask of what is trained, and a report of what happened to each row.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "../text/tokenizer.h"
#include "dataset_spec.h"
#include "sample_set.h"

namespace bantam {

enum class ExcessLength : uint8_t { drop, truncate, split, raise };

struct DataOptions {
  int64_t max_seq_length = 2048;
  ExcessLength excess_length_strategy = ExcessLength::drop;
  double max_excess_fraction = 0.05;  ///< more rows over the limit than this share: Error(data); not for split
  bool train_on_inputs = false;       ///< also train the prompt
};

struct RowRef {
  std::string file;
  int64_t line = 0;  ///< physical, from 1
  int64_t tokens = 0;
  std::string what;  ///< "dropped: 3,000 tokens > max_seq_length 2,048", ...
};

/// What became of the rows. Printed before step 1 and written to data_report.json.
/// rows_read = rows_kept + rows_dropped. Cut and split rows are among the kept ones, rows without a trained token (left
/// after cutting) among the dropped ones.
struct DataReport {
  int64_t rows_read = 0, rows_kept = 0, rows_cut = 0, rows_dropped = 0, rows_split = 0, rows_without_target = 0;
  int64_t rows_too_long = 0;                                    ///< rows over max_seq_length, whatever became of them
  int64_t samples = 0;                                          ///< more than rows_kept where rows were split
  int64_t tokens = 0, supervised_tokens = 0, longest_kept = 0;  ///< of the samples
  int64_t tokens_lost = 0, longest_row = 0, max_seq_length = 0;
  int64_t bytes_without_token = 0;  ///< of the texts; the vocabulary cannot say them
  std::vector<RowRef> affected;     ///< each cut, split or dropped row, and those with such bytes, in file order
  std::string to_json() const;
  std::string summary()
      const;  ///< a few lines for people; says to turn checkpointing on before cutting, where rows were hit
};

struct Dataset {
  SampleSet samples;
  DataReport report;
  std::vector<double> source_weights;  ///< of the dataset in the top 8 bits of a sample's id, see plan_epoch; empty: 1
};

/// Reads and tokenises. Error(data) with file:line for what cannot be parsed, for an empty dataset and for one without
/// any trained token (with counts). Encoding: prompt_completion = prompt with the tokenizer's specials, then the
/// completion without, then EOS, completion and EOS trained; text = text with specials, then EOS, all trained but the
/// first. Control-token text inside a row is plain text. `split` (type text only) cuts a row into pieces of
/// max_seq_length tokens.
Dataset read_datasets(const std::vector<DatasetSpec>& specs, const Tokenizer& tokenizer, const DataOptions& options);

/// Takes `rows` samples (or that fraction, when below 1) out of `train` for evaluation: drawn by seed, order kept.
/// Pieces of one row stay together. train.report stays what it was: the report of the files.
Dataset split_off_validation(Dataset& train, double rows, uint64_t seed);

}  // namespace bantam
