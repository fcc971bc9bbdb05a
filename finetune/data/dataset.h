// SPDX-License-Identifier: Apache-2.0
// Datasets: files to tokenised samples with a mask of what is trained, and a report of what happened to each row.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../text/tokenizer.h"
#include "chat/mask_options.h"
#include "data_report.h"
#include "dataset_spec.h"
#include "samples/sample_set.h"

namespace bantam {

class ChatTemplate;

enum class ExcessLength : uint8_t { drop, truncate, split, raise };

struct DataOptions {
  int64_t max_seq_length = 2048;
  ExcessLength excess_length_strategy = ExcessLength::drop;
  double max_excess_fraction = 0.05;  ///< more rows over the limit than this share: Error(data); not for split
  MaskOptions mask;
  /// Rows that cannot be read, lack a field or are refused by the chat template, and are left out and reported; one
  /// more: Error(data).
  int64_t max_malformed_rows = 0;
  bool normalize_newlines = false;  ///< CR LF and CR inside of texts become LF
  int num_threads = 0;              ///< 0: one per CPU. Results do not depend on it
  std::filesystem::path cache;      ///< folder in which prepared data are kept for the next time; empty: nowhere
  uint64_t cache_bytes = uint64_t{20} << 30;   ///< most that is kept there; what was not used for longest goes first
  std::function<void(int64_t rows)> progress;  ///< rows prepared so far; called now and then, from the calling thread
};

struct Dataset {
  SampleSet samples;
  DataReport report;
  std::vector<double> source_weights;  ///< of the dataset in the top 8 bits of a sample's id, see plan_epoch; empty: 1
  bool from_cache = false;
  std::string cache_problem;  ///< why the prepared data are not in options.cache; empty: they are, or need not be
};

/// The template of a model, or the one that `setting` asks for: tokenizer_default, the name of a built-in one, or a
/// .jinja file. Null: tokenizer_default, and the model has none. `today`: the date of templates that ask for it, as
/// 2026-11-30; empty: the local one, now. Error(usage) for another form.
std::shared_ptr<const ChatTemplate> load_chat_template(const std::filesystem::path& model,
                                                       const std::string& setting = "tokenizer_default",
                                                       const std::string& today = {});
/// Its date as 2026-11-30, where it asks for one; else empty. What a run has to keep to prepare the same rows again.
std::string date_of(const ChatTemplate& chat_template);

/// Reads and tokenises, on several threads; the order of samples is that of the files. Error(data) with file:line for
/// what cannot be parsed, for an empty dataset and for one without any trained token (with counts). How rows are
/// encoded: RowEncoder. `chat_template` is needed for chat rows only. `split` (type text only) cuts a row into pieces
/// of max_seq_length tokens. Where options.cache holds the same data, prepared in the same way, nothing is read again.
Dataset read_datasets(const std::vector<DatasetSpec>& specs, const std::shared_ptr<const Tokenizer>& tokenizer,
                      const DataOptions& options, const std::shared_ptr<const ChatTemplate>& chat_template = nullptr);

/// Takes `rows` samples (or that fraction, when below 1) out of `train` for evaluation: drawn by seed, order kept.
/// Pieces of one row stay together. train.report stays what it was: the report of the files.
Dataset split_off_validation(Dataset& train, double rows, uint64_t seed);

}  // namespace bantam
