// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.h"

#include "../../kernels/error.h"
#include "json_file.h"
#include "tokenizer_files.h"
#include "utf8.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

bool present(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

std::shared_ptr<const Tokenizer> from_gguf(const fs::path& path) {
  const auto file = GgufFile::open(path);
  const std::string kind(file->find_text("tokenizer.ggml.model").value_or(""));
  if (kind == "gpt2") return make_pipeline(read_gguf_bpe(*file));
  if (kind == "llama") return read_gguf_sentencepiece(*file);
  throw Error(ErrorCode::model, kind.empty()
                                    ? str(path.string(), ": no tokenizer.ggml.model: the file has no vocabulary")
                                    : str(path.string(), ": tokenizer.ggml.model is '", printable(kind),
                                          "', supported are gpt2 (byte-level BPE) and llama (SentencePiece)"));
}

std::shared_ptr<const Tokenizer> from_folder(const fs::path& folder) {
  const TokenizerConfig config = read_tokenizer_config(folder);
  const fs::path json_path = folder / "tokenizer.json", model_path = folder / "tokenizer.model";
  PipelineParts parts;
  if (present(json_path)) {
    const std::string where = json_path.string();
    parts = read_tokenizer_json(parse_json(read_text_file(json_path), where), config, where);
  } else if (const fs::path tekken_path = folder / "tekken.json"; present(tekken_path)) {
    const std::string where = tekken_path.string();
    parts = read_tekken(parse_json(read_text_file(tekken_path), where), config, where);
  } else if (present(model_path) && !looks_like_tiktoken(read_text_file(model_path))) {
    return read_sentencepiece_folder(folder, config, config.added);
  } else {
    const fs::path ranks = present(model_path) ? model_path : find_tiktoken(folder);
    if (ranks.empty()) {
      throw Error(ErrorCode::model, str(folder.string(), ": no tokenizer.json, tekken.json or tokenizer.model"),
                  "put the model's tokenizer files beside its weights");
    }
    parts = read_tiktoken(ranks, config);
  }
  parts.files = tokenizer_files(folder);
  return make_pipeline(std::move(parts));
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& model) {
  std::error_code ec;
  if (fs::is_directory(model, ec)) return from_folder(model);
  if (!present(model)) throw Error(ErrorCode::model, str(model.string(), ": no such file or folder"));
  if (model.extension() == ".gguf") return from_gguf(model);
  throw Error(ErrorCode::model, str(model.string(), ": expected a model folder or a .gguf file"));
}

}  // namespace bantam
