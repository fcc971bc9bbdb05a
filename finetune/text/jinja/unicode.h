// SPDX-License-Identifier: Apache-2.0
// Python's str on UTF-8: lengths, slices, case, spaces and splitting by code points. A byte that is not UTF-8 counts as
// one code point and stays as it is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// The code point at the start of `s`, which must not be empty; `bytes`: how long it is.
uint32_t text_code(std::string_view s, size_t& bytes);
int64_t text_length(std::string_view s);
/// Code points first, first + step, ... `count` of them; all lie inside.
std::string text_slice(std::string_view s, int64_t first, int64_t step, int64_t count);

bool is_python_space(uint32_t code);
/// str.isprintable of one code point; bytes that are no UTF-8 are not.
bool is_python_printable(uint32_t code);

/// Without leading (trailing) white space, or code points of `chars`.
std::string_view text_strip(std::string_view s, std::optional<std::string_view> chars, bool left, bool right);

std::string text_lower(std::string_view s);
std::string text_upper(std::string_view s);
std::string text_title(std::string_view s);       ///< str.title
std::string text_capitalize(std::string_view s);  ///< str.capitalize
/// At most `most` splits (negative: any number), from the right when `from_right`. No separator: runs of white space.
std::vector<std::string_view> text_split(std::string_view s, std::optional<std::string_view> separator, int64_t most,
                                         bool from_right);
std::vector<std::string_view> text_splitlines(std::string_view s, bool keep_ends);
/// Like std::string_view::find, in linear time.
size_t text_find(std::string_view s, std::string_view what, size_t from = 0);
/// How often `what` stands in `s`, without overlaps.
int64_t text_count(std::string_view s, std::string_view what);
/// Every `what` replaced, at most `most` of them when that is not negative.
std::string text_replace(std::string_view s, std::string_view what, std::string_view by, int64_t most);
/// markupsafe.escape.
std::string html_escape(std::string_view s);

}  // namespace bantam
