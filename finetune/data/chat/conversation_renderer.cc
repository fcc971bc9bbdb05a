// SPDX-License-Identifier: Apache-2.0
#include "conversation_renderer.h"

#include "../../../kernels/error.h"

namespace bantam {
namespace {

// Of one conversation. Turns with the same text around them share their renderings, so that thousands fit.
constexpr size_t kMostRenderings = 2048, kMostBytes = size_t{1} << 30;

}  // namespace

ConversationRenderer::ConversationRenderer(const ChatTemplate& chat_template, const Conversation& conversation,
                                           std::string trailer)
    : template_(chat_template), conversation_(conversation), trailer_(std::move(trailer)) {
  for (const auto& [key, value] : conversation.variables) {
    // What is rendered is asked for here; a row cannot change that.
    const bool ours = key.is(JinjaValue::Kind::string) &&
                      (key.text() == "add_generation_prompt" || key.text() == "messages" || key.text() == "tools");
    if (!ours) variables_.emplace_back(key, value);
  }
  now_ = chat_template.today();
  options_.clock = [this] {
    if (!now_) {
      const std::time_t seconds = std::time(nullptr);
      std::tm local{};
      localtime_r(&seconds, &local);
      now_ = local;
    }
    return *now_;
  };
}

Rendered ConversationRenderer::render(const JinjaValue& messages, const JinjaValue& tools,
                                      JinjaValue::Entries variables, bool prompt) {
  if (++renderings_ > kMostRenderings || bytes_ > kMostBytes) {
    throw Error(ErrorCode::data,
                str("a conversation of ", size(), " messages, which the template writes in too many different ways: ",
                    renderings_ - 1, " renderings did not show where each turn stands"),
                "use a chat template with {% generation %} tags, or shorter conversations");
  }
  ChatInput input;
  input.messages = messages;
  input.tools = tools;
  input.add_generation_prompt = prompt;
  input.variables = std::move(variables);
  Rendered out = template_.render(input, options_);
  bytes_ += out.text.size();
  return out;
}

Rendered ConversationRenderer::render(const JinjaValue& messages, bool prompt) {
  return render(messages, conversation_.tools, variables_, prompt);
}

std::optional<std::string> ConversationRenderer::part(size_t count, bool prompt) {
  const auto& items = conversation_.messages.items();
  JinjaValue::List first(items.begin(), items.begin() + static_cast<ptrdiff_t>(count));
  auto text = of(JinjaValue::list(std::move(first)), prompt);
  if (text && text->ends_with(trailer_)) text->resize(text->size() - trailer_.size());
  return text;
}

std::optional<std::string> ConversationRenderer::of(const JinjaValue& messages, bool prompt) {
  const size_t before = bytes_;
  try {
    return render(messages, prompt).text;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::data || renderings_ > kMostRenderings || before > kMostBytes) throw;
    return std::nullopt;
  }
}

std::optional<std::vector<Mark>> ConversationRenderer::marks(size_t count, bool prompt, size_t first, size_t last,
                                                             std::string_view plain, const MarkAlphabet& alphabet,
                                                             bool names) {
  size_t texts = 0;
  const JinjaValue messages = mark_texts(conversation_.messages, count, first, last, alphabet, names, &texts);
  const size_t before = bytes_;
  try {
    auto read = alphabet.read(render(messages, prompt).text, texts);
    if (!read || !read->text.starts_with(plain)) return std::nullopt;
    const std::string_view rest = std::string_view(read->text).substr(plain.size());
    if (!rest.empty() && rest != trailer_) return std::nullopt;
    return std::move(read->marks);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::data || renderings_ > kMostRenderings || before > kMostBytes) throw;
    return std::nullopt;
  }
}

}  // namespace bantam
