// SPDX-License-Identifier: Apache-2.0
// The run folder: checkpoints that survive kill -9 and a full disk, rotation, and the way back.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../../lora/adapter_set.h"

namespace bantam {

/// Where a run stands, after `step` optimiser steps. Everything random is a function of the seeds and these numbers.
struct RunState {
  int64_t step = 0;           ///< optimiser steps done
  int64_t updates = 0;        ///< of these, how many updated the adapters (AdamW's own count)
  int64_t epoch = 0;          ///< current epoch, from 0
  int64_t step_in_epoch = 0;  ///< steps done in it
  int64_t total_steps = 0;
  std::string run_key;      ///< identifies what changes results: recipe and data; resuming another run is refused
  std::string machine_key;  ///< build, ISA tier, device kind: a change is announced
};

/// Writes output_dir/checkpoint-<step>: adapter, moments, state, and a manifest of sizes and hashes last; all in a
/// folder beside, synced, then renamed. Error(io) leaves earlier checkpoints as they are. Returns its path.
std::filesystem::path save_checkpoint(const std::filesystem::path& output_dir, const AdapterSet& adapters,
                                      const RunState& state, const std::vector<std::string>& all_linears,
                                      const std::string& base_model_name);

/// Deletes the oldest checkpoints beyond `keep` (>= 1), by step number, never the newest; and unfinished ones of old
/// runs.
void rotate_checkpoints(const std::filesystem::path& output_dir, int64_t keep);

/// Steps of the complete or broken checkpoint-N folders, ascending.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& output_dir);

/// Loads the newest checkpoint whose manifest holds into `adapters` (values and moments). A broken one is reported
/// through `warn` and the one before it is tried. Nothing when there is none at all; Error(io) when there are only
/// broken ones.
std::optional<RunState> load_newest_checkpoint(const std::filesystem::path& output_dir, AdapterSet& adapters,
                                               const std::function<void(const std::string&)>& warn);
/// One given folder; Error(model) when it is broken.
RunState load_checkpoint(const std::filesystem::path& folder, AdapterSet& adapters);

}  // namespace bantam
