// SPDX-License-Identifier: Apache-2.0
// Schedules as text: for plan.json, where a resumed run finds the schedule that it was planned with.
#pragma once
#include <optional>
#include <string>

#include "schedule.h"

namespace bantam {

/// {"name": ..., "sets": [[names of kept values], ...], "actions": ["f STAGE SET" | "o STAGE SET" | "b STAGE", ...]};
/// o is a forward whose input goes to host memory.
std::string schedule_to_json(const ModelGraph& model, const Schedule& schedule);
/// Empty when the text is not of this model: a stage, a set or a value that it has not.
std::optional<Schedule> schedule_from_json(const ModelGraph& model, const std::string& json);

/// One letter per layer that runs backward, first layer first: what its first forward keeps.
///   * all that backward reads, 1 to 9 tenths of its bytes, I its input alone, H that in host memory, . nothing
///   (computed again from below). What is in host memory does not count to the tenths.
std::string schedule_strip(const ModelGraph& model, const Schedule& schedule);

}  // namespace bantam
