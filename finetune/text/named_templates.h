// SPDX-License-Identifier: Apache-2.0
// Chat templates that are here without a model: the well-known formats, with what is trained marked by {% generation
// %}.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

struct NamedTemplate {
  std::string name;
  std::string source;
  bool writes_eos = false;  ///< an answer ends with the model's eos_token
};

const std::vector<NamedTemplate>& named_templates();
/// Error(usage) for an unknown name, with all of them and the nearest.
const NamedTemplate& named_template(std::string_view name);

}  // namespace bantam
