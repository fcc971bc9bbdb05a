// SPDX-License-Identifier: Apache-2.0
// YAML text as a small tree with a place for each node. Scalars keep their text: types are the schema's business.
// Made for untrusted input: size, depth and node count are bounded, duplicate keys and recursive aliases are errors.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bantam {

struct YamlNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  int line = 0, column = 0;  ///< from 1; 0: not from a file
  std::string text;          ///< scalar: as written, without its quotes
  std::vector<YamlNode> items;
  std::vector<std::pair<YamlNode, YamlNode>> entries;  ///< keys are scalars

  static YamlNode scalar(std::string text);
  const YamlNode* find(std::string_view key) const;
};

/// What is wrong and where; a plain record, so that a file's errors can be collected.
struct YamlProblem {
  int line = 0, column = 0;
  std::string message;
};

inline constexpr size_t kMaxYamlBytes = 1 << 20;
inline constexpr int kMaxYamlDepth = 16;
inline constexpr size_t kMaxYamlNodes = 20000;

/// Parses one document. What stops the parse is the last problem and leaves a null node; duplicate keys are problems
/// too, but the parse goes on (the first one stays).
YamlNode parse_yaml(std::string_view text, std::vector<YamlProblem>& problems);

}  // namespace bantam
