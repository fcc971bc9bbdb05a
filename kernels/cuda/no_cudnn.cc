// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "cudnn_attention.h"

namespace bantam::cuda {

AttentionLibrary attention_library(int) {
  AttentionLibrary none;
  std::string("this build is without cuDNN").copy(none.why, sizeof none.why - 1);
  return none;
}
bool cudnn_attention(const AttentionArgs&) {
  return false;
}
bool cudnn_attention_backward(const AttentionBackwardArgs&) {
  return false;
}

}  // namespace bantam::cuda
