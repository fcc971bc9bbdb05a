// SPDX-License-Identifier: Apache-2.0
#include "chat_encoder.h"

#include <algorithm>

#include "../../../kernels/error.h"
#include "../../text/jinja/unicode.h"

namespace bantam {
namespace {

std::vector<std::string> control_tokens_of(const Tokenizer& tokenizer) {
  std::vector<std::string> out;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_special(id)) out.push_back(tokenizer.piece(id));
  return out;
}

std::string eos_of(const Tokenizer& tokenizer) {
  return tokenizer.eos_id() < 0 ? std::string() : tokenizer.piece(tokenizer.eos_id());
}

Conversation conversation_of(bool system, const char* question, const std::string& answer) {
  Conversation out;
  JinjaValue::List messages;
  const auto add = [&](const char* role, const std::string& content) {
    messages.push_back(JinjaValue::dict({{"role", role}, {"content", content}}));
    out.turns.push_back({role, {}, {}});
  };
  if (system) add("system", "Be brief.");
  add("user", question);
  add("assistant", answer);
  out.messages = JinjaValue::list(std::move(messages));
  return out;
}

// Decoders take and give spaces at the ends of what they decode.
std::string without_spaces(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') out.push_back(c);
  return out;
}

}  // namespace

struct ChatEncoder::Parts {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  AnswerSpans spans;

  bool joined(const AnsweredText& text, const Encoding& encoding, size_t token, size_t at) const;
  void check(const AnsweredText& text, const Encoding& encoding, size_t first, size_t last, uint32_t turn) const;
};

ChatEncoder::ChatEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template,
                         MaskOptions options) {
  AnswerSpans spans(chat_template, control_tokens_of(*tokenizer), eos_of(*tokenizer), std::move(options));
  parts_ = std::make_shared<Parts>(Parts{std::move(tokenizer), std::move(chat_template), std::move(spans)});
}

// Whether the prompt that ends at byte `at`, before `token`, has other tokens at its end when it is encoded alone: from
// the last control token on, which nothing reaches across.
bool ChatEncoder::Parts::joined(const AnsweredText& text, const Encoding& encoding, size_t token, size_t at) const {
  if (encoding.spans[token].begin < at) return true;
  constexpr size_t kMostTokens = 64;
  size_t first = token;
  while (first > 0 && token - first < kMostTokens) {
    --first;
    if (tokenizer->is_special(encoding.ids[first])) break;
  }
  if (first > 0 && !tokenizer->is_special(encoding.ids[first])) return false;
  const size_t from = first == 0 ? 0 : encoding.spans[first].begin;
  std::vector<TextSpan> plain;
  for (const TextSpan s : text.plain)
    if (s.begin >= from && s.end <= at) plain.push_back({s.begin - from, s.end - from});
  const auto alone = tokenizer->encode(std::string_view(text.text).substr(from, at - from),
                                       {.add_special = false, .parse_special = true, .plain = plain});
  return !std::equal(alone.begin(), alone.end(), encoding.ids.begin() + static_cast<ptrdiff_t>(first),
                     encoding.ids.begin() + static_cast<ptrdiff_t>(token));
}

// The tokens of a trained span read back as its text, where the vocabulary can give text back at all.
void ChatEncoder::Parts::check(const AnsweredText& text, const Encoding& encoding, size_t first, size_t last,
                               uint32_t turn) const {
  const std::span<const int32_t> ids(encoding.ids);
  const size_t begin = encoding.spans[first].begin, end = encoding.spans[last - 1].end;
  const std::string read = tokenizer->decode(ids.subspan(first, last - first), false);
  const std::string_view covered = std::string_view(text.text).substr(begin, end - begin);
  if (read == covered || without_spaces(read) == without_spaces(covered)) return;
  if (without_spaces(tokenizer->decode(ids, false)) != without_spaces(text.text)) return;  // the text is normalised
  throw Error(ErrorCode::internal, str("messages[", turn, "]: the trained tokens do not read back as its text"));
}

std::optional<EndOfTurn> ChatEncoder::end_of_turn() const {
  const Tokenizer& tokenizer = *parts_->tokenizer;
  const AnswerSpans spans(parts_->chat_template, control_tokens_of(tokenizer), eos_of(tokenizer));
  const std::string answer = "It is blue";
  AnsweredText text;
  for (const bool system : {false, true}) {  // some templates ask for a system turn, others refuse it
    try {
      text = spans.render(conversation_of(system, "Which colour?", answer));
      break;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::data) throw;
    }
  }
  const size_t at = text.text.rfind(answer);
  if (text.trained.empty() || at == std::string::npos) return std::nullopt;
  const size_t begin = at + answer.size(), end = std::max(begin, text.trained.back().bytes.end);
  const std::string_view tail =
      text_strip(std::string_view(text.text).substr(begin, end - begin), std::nullopt, true, true);
  EndOfTurn out{std::string(tail), {}};
  if (tail.empty()) return out;
  const auto tail_begin = static_cast<size_t>(tail.data() - text.text.data());
  const Encoding encoding = tokenizer.encode_with_spans(text.text, {.add_special = false, .parse_special = true});
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const TextSpan s = encoding.spans[i];
    if (s.end <= tail_begin || s.begin >= tail_begin + tail.size()) continue;
    if (tokenizer.is_special(encoding.ids[i])) return EndOfTurn{std::move(out.text), {encoding.ids[i]}};
    out.ids.push_back(encoding.ids[i]);
  }
  return out;
}

AnsweredText ChatEncoder::text(const Conversation& conversation) const {
  return parts_->spans.render(conversation);
}

std::vector<int32_t> ChatEncoder::encode_prompt(const Conversation& conversation) const {
  const AnsweredText prompt = parts_->spans.prompt(conversation);
  return parts_->tokenizer->encode(prompt.text, {.add_special = false, .parse_special = true, .plain = prompt.plain});
}

Sample ChatEncoder::encode(const Conversation& conversation, ChatNotes* notes) const {
  const AnsweredText text = parts_->spans.render(conversation);
  Encoding encoding = parts_->tokenizer->encode_with_spans(
      text.text, {.add_special = false, .parse_special = true, .plain = text.plain});
  const size_t n = encoding.ids.size();
  Sample out;
  out.trained.assign(n, 0);
  const bool weighted =
      std::any_of(text.trained.begin(), text.trained.end(), [](const auto& s) { return s.weight != 1; });
  if (weighted) out.weights.assign(n, 1);
  bool any = false;
  size_t token = 0;
  for (const TrainedSpan& span : text.trained) {
    while (token < n && encoding.spans[token].end <= span.bytes.begin) ++token;
    const size_t first = token;
    size_t i = token;
    for (; i < n && encoding.spans[i].begin < span.bytes.end; ++i) {
      const TextSpan s = encoding.spans[i];
      if (s.end <= span.bytes.begin || s.end == s.begin || out.trained[i] != 0 || i == 0) continue;
      out.trained[i] = 1;
      if (weighted) out.weights[i] = span.weight;
      any = true;
    }
    if (i == first) continue;
    parts_->check(text, encoding, first, i, span.turn);
    if (notes != nullptr && first > 0 && parts_->joined(text, encoding, first, span.bytes.begin)) {
      ++notes->joined_prompts;
    }
  }
  if (!any && !text.trained.empty()) {
    throw Error(ErrorCode::data, "no token of the rendered conversation is trained: the only one is the first",
                "a conversation needs a prompt before its answer");
  }
  if (notes != nullptr) notes->control_texts += static_cast<int64_t>(text.plain.size());
  out.ids = std::move(encoding.ids);
  return out;
}

}  // namespace bantam
