// SPDX-License-Identifier: Apache-2.0
#include "post_processor.h"

#include "../../kernels/error.h"
#include "json_file.h"
#include "stage_json.h"
#include "text_model.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& at, const std::string& what) {
  throw Error(ErrorCode::model, str(at, ": ", what));
}

int32_t token_id(const json& id, const std::string& at) {
  if (!id.is_number_integer() || id < 0 || id > kMostTokenId) fail(at, "expected a token id");
  return id.get<int32_t>();
}

// A part wraps what the parts before it made.
void wrap(PostProcessor& out, const std::vector<int32_t>& before, const std::vector<int32_t>& after) {
  out.prefix.insert(out.prefix.begin(), before.begin(), before.end());
  out.suffix.insert(out.suffix.end(), after.begin(), after.end());
}

void read_template(const json& p, const std::string& at, PostProcessor& out) {
  const json* single = json_find(p, "single", at);
  const json* tokens = json_find(p, "special_tokens", at);
  if (single == nullptr || !single->is_array()) fail(at, "single: expected a list");
  std::vector<int32_t> before, after;
  bool text_seen = false;
  for (size_t i = 0; i < single->size(); ++i) {
    const std::string here = str(at, ".single[", i, "]");
    const json& item = (*single)[i];
    if (const json* sequence = json_find(item, "Sequence", here)) {
      if (text_seen) fail(here, "single names the text twice");
      if (need_text(*sequence, "id", here) != "A") fail(here, "single names another text than A");
      text_seen = true;
      continue;
    }
    const json* special = json_find(item, "SpecialToken", here);
    if (special == nullptr) fail(here, "expected a Sequence or a SpecialToken");
    const std::string name = need_text(*special, "id", here);
    const json* entry = tokens == nullptr ? nullptr : json_find(*tokens, name.c_str(), at + ".special_tokens");
    const json* ids = entry == nullptr ? nullptr : json_find(*entry, "ids", at + ".special_tokens." + printable(name));
    if (ids == nullptr || !ids->is_array()) fail(here, str("special token '", printable(name), "' without ids"));
    for (const json& id : *ids) {
      (text_seen ? after : before).push_back(token_id(id, str(at, ".special_tokens.", printable(name), ".ids")));
    }
  }
  if (!text_seen) fail(at, "single has no place for the text");
  wrap(out, before, after);
}

// ["[CLS]", 101] of BertProcessing and RobertaProcessing.
int32_t read_pair(const json& p, const char* key, const std::string& at) {
  const json* pair = json_find(p, key, at);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2 || !(*pair)[0].is_string()) {
    fail(at, str(key, ": expected [\"token\", id]"));
  }
  return token_id((*pair)[1], str(at, ".", key));
}

}  // namespace

PostProcessor read_post_processor(const json* j, const std::string& where) {
  PostProcessor out;
  for_each_part(j, "processors", str(where, ": post_processor"), [&](const json& part, const std::string& at) {
    const std::string type = stage_type(part, at);
    if (type == "ByteLevel") return;  // moves offsets only
    if (type == "TemplateProcessing") return read_template(part, at, out);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      return wrap(out, {read_pair(part, "cls", at)}, {read_pair(part, "sep", at)});
    }
    fail(at, str("post_processor ", printable(type), " is not supported (known: TemplateProcessing, ByteLevel, ",
                 "BertProcessing, RobertaProcessing, Sequence)"));
  });
  return out;
}

}  // namespace bantam
