// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "../finetune/data/dataset.h"
#include "../finetune/data/grouped.h"
#include "../finetune/data/row_encoder.h"
#include "../finetune/data/rows/row_reader.h"
#include "../kernels/error.h"
#include "commands.h"
#include "model_source.h"
#include "row_view.h"

namespace bantam {
namespace {

std::string whole_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::data, str("--file ", path.string(), ": cannot be opened"), "check the path");
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) throw Error(ErrorCode::io, str("--file ", path.string(), ": read error"));
  return text;
}

class Printer {
 public:
  Printer(const TokenizeCommandOptions& o, const Tokenizer& tokenizer)
      : o_(o), tokenizer_(tokenizer), color_(isatty(STDOUT_FILENO) != 0 && o.common.color) {}

  void print(const std::vector<int32_t>& ids, const std::vector<uint8_t>& trained, const std::string& where) {
    if (o_.common.json) {
      nlohmann::ordered_json j;
      if (!where.empty()) j["row"] = where;
      j["ids"] = ids;
      if (!trained.empty()) j["trained"] = trained;
      for (const int32_t id : ids) j["pieces"].push_back(tokenizer_.piece(id));
      put(j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
      return;
    }
    if (!where.empty()) {
      const auto n = std::count_if(trained.begin(), trained.end(), [](uint8_t t) { return t != 0; });
      put(str(where, ": ", grouped(static_cast<int64_t>(ids.size())), " tokens, ", grouped(n), " trained\n"));
    }
    put(token_table(ids, trained, tokenizer_, color_));
  }

 private:
  static void put(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }
  const TokenizeCommandOptions& o_;
  const Tokenizer& tokenizer_;
  bool color_;
};

}  // namespace

int tokenize_command(const TokenizeCommandOptions& o) {
  const ModelSource source = find_source(o.model_or_run, false);
  const auto tokenizer = load_tokenizer(source.model);
  Printer printer(o, *tokenizer);
  const auto text = [&] {
    if (o.text) return *o.text;
    return o.file.empty() ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : whole_file(o.file);
  };
  if (!o.chat) {
    const std::string input = text();
    const auto ids = tokenizer->encode(input, {.add_special = !o.no_special, .parse_special = o.parse_special});
    printer.print(ids, {}, {});
    if (!o.common.quiet) {
      std::fprintf(stderr, "%s tokens, %s bytes\n", grouped(static_cast<int64_t>(ids.size())).c_str(),
                   grouped(static_cast<int64_t>(input.size())).c_str());
      if (const size_t lost = tokenizer->unencodable(input); lost > 0)
        std::fprintf(stderr, "warning: %zu bytes have no token in this vocabulary\n", lost);
    }
    return 0;
  }
  const auto chat_template = load_chat_template(source.model, o.chat_template.value_or(source.chat_template));
  if (!chat_template)
    throw Error(ErrorCode::model, str(source.model.string(), ": the model has no chat template"),
                "name one with --chat-template, e.g. chatml");
  const MaskOptions mask = source.recipe ? MaskOptions{source.recipe->train_on_inputs, source.recipe->roles_to_train,
                                                       source.recipe->train_on_eos}
                                         : MaskOptions{};
  if (o.file.empty()) {
    // A row as JSON, or what a user says.
    const std::string input = text();
    const auto row = nlohmann::ordered_json::parse(input, nullptr, false);
    if (!row.is_object()) {
      printer.print(chat_prompt_ids(chat_template, tokenizer, {{}, input}), {}, {});
      return 0;
    }
    DatasetSpec spec;
    spec.type = detect_type(row, spec);
    const Sample s = RowEncoder(spec, tokenizer, chat_template, mask).encode(row).sample;
    printer.print(s.ids, s.trained, "row");
    return 0;
  }
  DatasetSpec spec;
  spec.path = o.file.string();
  const auto reader = open_rows(o.file);
  std::optional<RowEncoder> encoder;
  RawRow raw;
  for (int64_t n = 0; n < o.rows && reader->next(raw); ++n) {
    RowNotes notes;
    const auto row = reader->parse(raw, notes);
    const std::string where = str(reader->file(), ":", raw.line);
    try {
      if (!encoder) {
        spec.type = detect_type(row, spec);
        encoder.emplace(spec, tokenizer, chat_template, mask);
      }
      const Sample s = encoder->encode(row).sample;
      printer.print(s.ids, s.trained, where);
    } catch (const Error& e) {
      throw Error(e.code(), str(where, ": ", e.what()), e.hint());
    }
  }
  return 0;
}

}  // namespace bantam
