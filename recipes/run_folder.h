// SPDX-License-Identifier: Apache-2.0
// The folder of a run as the program sees it: one writer at a time, what may go on from where, metrics.
#pragma once
#include <filesystem>
#include <string>

#include "commands.h"
#include "recipe.h"

namespace bantam {

class RunFolder {
 public:
  /// Creates the folder, locks it (Error(io) when another process trains into it), and decides how to start:
  /// an unfinished run of the same recipe goes on; a finished or a different one is refused, saying what differs,
  /// unless
  /// --overwrite (its files are removed) or, for keys that may change, --resume. Error(usage).
  RunFolder(const Recipe& recipe, const CommandOptions& options);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The date that the unfinished run's data were rendered with; empty: none, or no run.
  std::string earlier_date() const;
  /// plan.json of the unfinished run that is there; empty: none.
  std::string earlier_plan() const;
  /// Checks of the recipe are done and memory fits: from here on the folder belongs to this recipe.
  void begin(const Recipe& recipe, const std::string& plan_json, const std::string& data_report_json);
  /// Appends a line; lines of steps after `step` were dropped by drop_metrics_after().
  void metric(const std::string& json_line);
  /// After a resume: what an earlier process logged beyond the checkpoint is done again.
  void drop_metrics_after(int64_t step);
  void finish();

 private:
  bool has_run() const;
  bool is_finished() const;
  void remove_run() const;
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace bantam
