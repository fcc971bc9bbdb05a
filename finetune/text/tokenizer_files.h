// SPDX-License-Identifier: Apache-2.0
// What stands behind load_tokenizer: one reader per kind of file.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../quant/gguf.h"
#include "added_tokens.h"
#include "pipeline.h"
#include "tokenizer.h"

namespace bantam {

/// What the small files beside a vocabulary say: tokenizer_config.json, special_tokens_map.json, config.json.
struct TokenizerConfig {
  std::optional<std::string> bos, eos;     ///< texts
  std::optional<int64_t> bos_id, eos_id;   ///< from config.json, where no text is given
  std::optional<bool> adds_bos, adds_eos;  ///< add_bos_token, add_eos_token
  std::optional<bool> legacy;              ///< SentencePiece: a space is put before text after a control token too
  std::vector<AddedToken> added;           ///< added_tokens_decoder
};
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

/// The tokenizer files of a folder as they are, for a run's folder.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const std::filesystem::path& folder);

std::vector<AddedToken> read_added_tokens(const nlohmann::json& j, const std::string& where);
/// tokenizer.json, whose parts are named by file and place when they are refused.
PipelineParts read_tokenizer_json(const nlohmann::json& j, const TokenizerConfig& config, const std::string& where);

/// The vocabulary of a GGUF file, checked for sizes.
struct GgufVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;  ///< as many; ggml's numbers
  int32_t bos = -1, eos = -1, unk = -1;
  std::optional<bool> adds_bos, adds_eos;
  std::string chat_template;  ///< empty: none
};
enum GgufTokenType : int32_t {
  kGgufNormal = 1,
  kGgufUnknown = 2,
  kGgufControl = 3,
  kGgufUserDefined = 4,
  kGgufUnused = 5,
  kGgufByte = 6
};
GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

/// tokenizer.ggml.model == "gpt2". Its files() are a tokenizer.json that HF tokenizers load and that gives the same
/// ids, and a tokenizer_config.json.
PipelineParts read_gguf_bpe(const GgufFile& file);
/// tokenizer_config.json of a vocabulary that came from a GGUF file.
std::string write_tokenizer_config(const GgufVocabulary& vocabulary, const char* tokenizer_class, bool adds_bos,
                                   bool adds_eos);

/// tokenizer.model, through libsentencepiece.
std::shared_ptr<const Tokenizer> read_sentencepiece_folder(const std::filesystem::path& folder,
                                                           const TokenizerConfig& config,
                                                           std::vector<AddedToken> added);
/// Mistral's tekken.json.
PipelineParts read_tekken(const nlohmann::json& j, const TokenizerConfig& config, const std::string& where);
/// Lines of "base64 rank".
bool looks_like_tiktoken(std::string_view bytes);
/// A tiktoken vocabulary: `path` is one of the folder's files.
PipelineParts read_tiktoken(const std::filesystem::path& path, const TokenizerConfig& config);
/// The folder's NAME.tiktoken; empty: none. Error(model) for several.
std::filesystem::path find_tiktoken(const std::filesystem::path& folder);
/// tokenizer.ggml.model == "llama".
std::shared_ptr<const Tokenizer> read_gguf_sentencepiece(const GgufFile& file);

}  // namespace bantam
