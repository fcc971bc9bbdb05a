// SPDX-License-Identifier: Apache-2.0
// How far two words are from each other, to say which one was meant.
#pragma once
#include <cstddef>
#include <string_view>

namespace bantam {

/// Edits (insert, delete, replace, swap of neighbours) from a to b, in bytes. Takes a.size() * b.size() steps.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace bantam
