// SPDX-License-Identifier: Apache-2.0
// Choices of how a file is cut into rows.
#pragma once
#include <cstdint>

namespace bantam {

/// How plain text (.txt, .md) becomes rows, in the words of HF datasets' text loader.
enum class SampleBy : uint8_t {
  document,   ///< the whole file
  paragraph,  ///< up to a blank line
  line,
};

}  // namespace bantam
