// SPDX-License-Identifier: Apache-2.0
// The last stage of tokenizer.json: the texts of tokens back to text.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bantam {

/// One step. Immutable, safe in several threads. Texts may be any bytes behind a step that makes bytes.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

class Decoders {
 public:
  explicit Decoders(std::string where = "decoder") : where_(std::move(where)) {}
  void add(std::unique_ptr<Decoder> step) { steps_.push_back(std::move(step)); }
  /// The texts of the tokens, changed by the steps and joined; with spaces between them when there is no step.
  /// Error(data) when they grow out of all proportion.
  std::string apply(std::vector<std::string> tokens) const;
  /// The one step is ByteLevel: each token stands for its bytes, whatever is around it.
  bool only_bytes = false;

 private:
  std::string where_;
  std::vector<std::unique_ptr<Decoder>> steps_;
};

/// The "decoder" of a tokenizer.json (null: none). Error(model) naming `where`, the place within and the part that is
/// not known. Bytes that make no character stay bytes, where HF tokenizers write U+FFFD: what is decoded bit by bit can
/// be joined.
Decoders read_decoder(const nlohmann::json* j, const std::string& where);

/// ByteLevel alone.
Decoders byte_level_decoder();

}  // namespace bantam
