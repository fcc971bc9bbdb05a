// SPDX-License-Identifier: Apache-2.0
// The data of a session as people and machines read it.
#pragma once
#include <string>

#include "../finetune/data/batch.h"
#include "commands.h"
#include "session.h"

namespace bantam {

/// The report, what packing saves, and the same of the held-out data.
std::string data_text(const Session& session, const PackingStats& packing);
/// {"train": ..., "eval": ...}: data_report.json.
std::string data_json(const Session& session, const PackingStats& packing);
/// Of the session's training data, as its options batch them.
PackingStats packing_of(const Session& session);
/// The first options.debug_rows rows as the model will see them; empty for 0.
std::string debug_rows(const Session& session, const CommandOptions& options);

}  // namespace bantam
