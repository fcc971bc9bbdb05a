// SPDX-License-Identifier: Apache-2.0
// Text of recipe values to numbers and back. Each parser takes the whole text or nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// true, yes, on / false, no, off, in any of the three usual cases (true, True, TRUE).
std::optional<bool> parse_bool(std::string_view text);
/// Decimal digits with an optional sign: 012 is twelve; 1e3, 8.0, 0x10 and 1_000 are not whole numbers.
std::optional<int64_t> parse_integer(std::string_view text);
/// 2, .5, 1., 1e-4, 1E-4, 1.e-4; finite only.
std::optional<double> parse_number(std::string_view text);
/// Bytes: 1024, 10GiB, 512 MiB, 1.5GB; KiB MiB GiB TiB are powers of 1024, KB MB GB TB of 1000.
std::optional<int64_t> parse_size(std::string_view text);

/// FLOP/s: 4e11, 400G, 90 TFLOPS, 1.5P; K M G T P are powers of 1000.
std::optional<double> parse_rate(std::string_view text);

/// Shortest text that parse_number reads back to the same value.
std::string format_number(double value);
/// Largest unit that divides it.
std::string format_size(int64_t bytes);

/// Text as a YAML scalar that reads back to it: plain where that is safe, else in double quotes.
std::string quote_yaml(std::string_view text);

/// A value as messages show it: in quotes, control characters escaped, cut when long.
std::string show(std::string_view text);

/// The candidate nearest to `word` by edit distance (case and - _ do not count), or empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace bantam
