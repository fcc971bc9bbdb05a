// SPDX-License-Identifier: Apache-2.0
// A tokenizer made of stages: added tokens are cut out of the text, the rest is normalised, cut into pieces and encoded
// by a model. This is the shape of tokenizer.json; GGUF and tiktoken vocabularies are brought into it.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "added_tokens.h"
#include "decoder.h"
#include "normalizer.h"
#include "post_processor.h"
#include "pre_tokenizer.h"
#include "text_model.h"
#include "tokenizer.h"

namespace bantam {

struct PipelineParts {
  std::string where;  ///< file, for messages
  std::vector<AddedToken> added;
  Normalizers normalizer;
  PreTokenizers pre_tokenizer;
  std::unique_ptr<TextModel> model;
  PostProcessor post_processor;
  Decoders decoder;
  int32_t bos = -1, eos = -1;
  std::vector<std::pair<std::string, std::string>> files;
};

/// Error(model) for ids that have no token or two texts.
std::shared_ptr<const Tokenizer> make_pipeline(PipelineParts parts);

}  // namespace bantam
