// SPDX-License-Identifier: Apache-2.0
// Real files beside the checkout, which a test skips where they are absent.
#pragma once
#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "finetune/text/tokenizer.h"
#include "temp_dir.h"

namespace bantam::testing {

inline std::filesystem::path shared_data(const std::string& name) {
  return std::filesystem::path(BANTAM_SHARED_DATA) / name;
}

/// Says so where it is.
inline bool missing(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return false;
  MESSAGE("skipped, not here: " << path.string());
  return true;
}

/// A file as the tokenizer of a folder of its own.
inline std::shared_ptr<const Tokenizer> load_alone(const std::filesystem::path& file) {
  TempDir dir;
  const auto kind = file.extension();
  std::filesystem::copy_file(file, dir / (kind == ".json"       ? "tokenizer.json"
                                          : kind == ".tiktoken" ? "x.tiktoken"
                                                                : "tokenizer.model"));
  return load_tokenizer(dir.path());
}

}  // namespace bantam::testing
