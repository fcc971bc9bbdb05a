// SPDX-License-Identifier: Apache-2.0
// Which tokens of a row are trained.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace bantam {

/// Which end-of-turn markers of chat rows are trained.
enum class TrainOnEos : uint8_t {
  turn,  ///< that of each trained turn
  last,  ///< that of the last trained turn only
  all,   ///< of every turn, trained or not
  none,
};

struct MaskOptions {
  bool train_on_inputs = false;  ///< the prompt too; of chat rows everything but the first token
  std::vector<std::string> roles_to_train = {"assistant"};  ///< of chat rows
  TrainOnEos train_on_eos = TrainOnEos::turn;               ///< of chat rows
};

}  // namespace bantam
