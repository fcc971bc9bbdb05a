// SPDX-License-Identifier: Apache-2.0
// A small model folder with a trained vocabulary and a chat template, and rows for it.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/data/dataset.h"
#include "finetune/text/chat_template.h"
#include "kernels/cross_entropy.h"
#include "text_testing.h"

namespace bantam::testing {

/// Without a BOS; an answer ends with <|im_end|> and a line end.
inline const std::string kTurns =
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
inline const std::string kTurnsWithBos = "{{ bos_token }}" + kTurns;

/// The golden byte-level vocabulary with <s>, </s> and the control tokens of several families.
inline nlohmann::json vocabulary_json() {
  nlohmann::json j = golden_entry("byte_level", "smollm").at("json");
  const auto golden =
      nlohmann::json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "chat_mask_golden.json"));
  for (const auto& token : golden.at("added_tokens")) j["added_tokens"].push_back(token);
  return j;
}

inline nlohmann::json vocabulary_config() {
  return {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_bos_token", true}};
}

using Messages = std::vector<std::pair<std::string, std::string>>;

inline std::string chat_row(const Messages& messages) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [role, content] : messages) list.push_back({{"role", role}, {"content", content}});
  return nlohmann::ordered_json{{"messages", list}}.dump() + "\n";
}
inline std::string row_of(const nlohmann::ordered_json& row) {
  return row.dump() + "\n";
}

class ModelFolder {
 public:
  DataOptions options{.max_seq_length = 4000, .max_excess_fraction = 1, .num_threads = 1};
  DatasetSpec spec;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  ///< null: none

  explicit ModelFolder(const std::string& source = kTurns, const nlohmann::json& config = vocabulary_config(),
                       const nlohmann::json& vocabulary = vocabulary_json()) {
    write_file(dir_ / "tokenizer.json", vocabulary.dump());
    load(source, config);
  }
  /// Of a SentencePiece model in the golden file.
  static ModelFolder sentencepiece(const std::string& name, const std::string& source, const nlohmann::json& config) {
    return ModelFolder(from_base64(golden_entry("sentencepiece", name).at("model").get<std::string>()), source, config,
                       nullptr);
  }

  Dataset read(const std::string& content, const std::string& name = "d.jsonl") {
    write_file(dir_ / name, content);
    spec.path = dir_ / name;
    return read_datasets({spec}, tokenizer, options, chat_template);
  }
  std::string error(const std::string& content, ErrorCode code = ErrorCode::data, const std::string& name = "d.jsonl") {
    return error_of([&] { read(content, name); }, code);
  }
  std::string whole(const SampleView& s) const { return tokenizer->decode(s.ids, false); }
  /// What the labels of the sample's batch say, each stretch in brackets.
  std::string supervised(const Dataset& d, size_t i) const {
    return supervised(make_batch(d.samples, {static_cast<int32_t>(i)}))[0];
  }
  /// Of each row of a batch.
  std::vector<std::string> supervised(const Batch& b) const {
    std::vector<std::string> out;
    for (size_t s = 0; s + 1 < b.cu_seqlens.size(); ++s) {
      std::string text;
      std::vector<int32_t> ids;
      const auto flush = [&] {
        if (!ids.empty()) text += "[" + tokenizer->decode(ids, false) + "]";
        ids.clear();
      };
      for (auto i = static_cast<size_t>(b.cu_seqlens[s]); i < static_cast<size_t>(b.cu_seqlens[s + 1]); ++i) {
        if (b.labels[i] == kIgnoreLabel) {
          flush();
        } else {
          ids.push_back(b.labels[i]);
        }
      }
      flush();
      out.push_back(text);
    }
    return out;
  }
  int64_t count(const SampleView& s, const std::string& token) const {
    return std::count(s.ids.begin(), s.ids.end(), tokenizer->token_id(token));
  }
  const TempDir& dir() const { return dir_; }

 private:
  ModelFolder(const std::string& model, const std::string& source, const nlohmann::json& config, std::nullptr_t) {
    write_file(dir_ / "tokenizer.model", model);
    load(source, config);
  }
  void load(const std::string& source, const nlohmann::json& config) {
    write_file(dir_ / "tokenizer_config.json", config.dump());
    if (!source.empty()) write_file(dir_ / "chat_template.jinja", source);
    tokenizer = load_tokenizer(dir_.path());
    chat_template = load_chat_template(dir_.path());
  }

  TempDir dir_;
};

/// Equal in number and one by one, shown where not.
inline bool same_samples(const SampleSet& a, const SampleSet& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

}  // namespace bantam::testing
