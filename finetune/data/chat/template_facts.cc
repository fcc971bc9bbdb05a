// SPDX-License-Identifier: Apache-2.0
#include "template_facts.h"

#include <algorithm>
#include <optional>

#include "../../text/jinja/unicode.h"
#include "conversation_renderer.h"

namespace bantam {
namespace {

constexpr const char* kRoles[] = {"system", "user", "assistant"};
constexpr const char* kTexts[] = {"Alpha beta", "Gamma delta", "Epsilon zeta", "Eta theta", "Iota kappa", "Lambda mu"};

std::optional<std::string> rendered(const ChatTemplate& chat_template, const std::vector<int>& roles, bool prompt,
                                    bool with_tools, const std::string& trailer) {
  const Conversation conversation = sample_conversation(roles, with_tools);
  ConversationRenderer renderer(chat_template, conversation, trailer);
  return renderer.part(roles.size(), prompt);
}

std::string trailer_of(const ChatTemplate& chat_template, bool with_tools) {
  const auto text = rendered(chat_template, {1}, false, with_tools, {});
  const auto prompt = rendered(chat_template, {1}, true, with_tools, {});
  if (!text || !prompt || prompt->size() < text->size()) return {};
  const auto same = std::mismatch(text->begin(), text->end(), prompt->begin()).first - text->begin();
  const std::string tail = text->substr(static_cast<size_t>(same));
  const bool blank = tail.find_first_not_of(" \t\r\n") == std::string::npos;
  return blank && prompt->size() - tail.size() >= static_cast<size_t>(same) && prompt->ends_with(tail) ? tail : "";
}

}  // namespace

Conversation sample_conversation(const std::vector<int>& roles, bool with_tools) {
  Conversation out;
  JinjaValue::List messages;
  for (size_t i = 0; i < roles.size(); ++i) {
    messages.push_back(JinjaValue::dict({{"role", kRoles[roles[i]]}, {"content", kTexts[i]}}));
    out.turns.push_back({kRoles[roles[i]], {}, {}});
  }
  out.messages = JinjaValue::list(std::move(messages));
  if (with_tools) {
    const JinjaValue text = JinjaValue::dict({{"type", "string"}, {"description", "Nu xi"}});
    const JinjaValue parameters = JinjaValue::dict({{"type", "object"},
                                                    {"properties", JinjaValue::dict({{"omicron", text}})},
                                                    {"required", JinjaValue::list({"omicron"})}});
    const JinjaValue function =
        JinjaValue::dict({{"name", "pi_rho"}, {"description", "Sigma tau"}, {"parameters", parameters}});
    out.tools = JinjaValue::list({JinjaValue::dict({{"type", "function"}, {"function", function}})});
  }
  return out;
}

std::string_view sample_text(size_t message) {
  return kTexts[message];
}

const char* sample_role(int role) {
  return kRoles[role];
}

size_t cut_before(std::string_view text, size_t length, const ControlText& control) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (; length > 0; --length) {
    if (text[length - 1] == '\n') break;
    // The name of a role belongs to the control token before it.
    const bool named = length < text.size() && is_letter(text[length]);
    if (!named && control.ends(text.substr(0, length)) > 0) break;
  }
  return length;
}

TemplateFacts learn_facts(const ChatTemplate& chat_template, const ControlText& control, const std::string& eos,
                          bool with_tools) {
  TemplateFacts facts;
  facts.eos = eos;
  facts.trailer = trailer_of(chat_template, with_tools);
  if (!eos.empty()) facts.markers.insert(eos), facts.doubled.insert(eos);
  for (const auto& [name, token] : chat_template.special_tokens()) {  // the template's own may be another one
    if (name.text() == "eos_token" && !token.text().empty()) facts.markers.insert(token.text());
  }
  for (const auto& roles : {std::vector<int>{0}, {1}, {0, 1}, {1, 2}, {0, 1, 2}}) {
    const auto text = rendered(chat_template, roles, false, with_tools, facts.trailer);
    if (!text) continue;
    const size_t at = text->rfind(kTexts[roles.size() - 1]);
    if (at == std::string::npos) continue;
    std::string_view tail = std::string_view(*text).substr(at + std::string_view(kTexts[roles.size() - 1]).size());
    tail = text_strip(tail, std::nullopt, true, false);
    if (const size_t n = control.starts(tail); n > 0) {
      facts.markers.insert(std::string(tail.substr(0, n)));
      if (roles.back() != 2) {
        facts.doubled.insert(std::string(tail.substr(0, n)));
      } else {
        const size_t end = std::min(tail.find_first_not_of("\r\n", n), tail.size());
        facts.line_ends = tail.substr(n, end - n);
      }
    }
    if (roles.back() == 1 && facts.head.empty()) {
      const auto prompt = rendered(chat_template, roles, true, with_tools, facts.trailer);
      if (prompt && prompt->starts_with(*text)) facts.head = prompt->substr(text->size());
    }
  }
  const auto open = [&](std::string_view head) {  // its first control token that ends no turn
    for (const TextSpan span : control.find(head)) {
      std::string token(head.substr(span.begin, span.end - span.begin));
      if (facts.markers.contains(token)) continue;
      if (std::find(facts.openers.begin(), facts.openers.end(), token) == facts.openers.end()) {
        facts.openers.push_back(std::move(token));
      }
      return;
    }
  };
  open(facts.head);
  if (const auto text = rendered(chat_template, {1, 2, 1}, false, with_tools, facts.trailer)) {
    // The same before the first and before the second user text.
    const size_t first = text->find(kTexts[0]), second = text->rfind(kTexts[2]);
    const size_t answer = text->rfind(kTexts[1], second);
    if (first != std::string::npos && second != std::string::npos && answer != std::string::npos && answer > first) {
      const size_t from = answer + std::string_view(kTexts[1]).size();
      size_t same = 0;
      while (same < first && same < second - from && (*text)[first - 1 - same] == (*text)[second - 1 - same]) ++same;
      open(std::string_view(*text).substr(first - same, same));
    }
  }
  facts.core = facts.head.size();
  const auto before = rendered(chat_template, {1}, false, with_tools, facts.trailer);
  for (const auto& roles : {std::vector<int>{1, 2}, {1, 2, 1}, {1, 2, 1, 2}}) {
    const auto text = rendered(chat_template, roles, false, with_tools, facts.trailer);
    if (!before || !text || !text->starts_with(*before)) continue;
    const size_t end = text->find(kTexts[1], before->size());
    if (end == std::string::npos) continue;
    const std::string_view here = std::string_view(*text).substr(before->size(), end - before->size());
    size_t same = 0;
    while (same < here.size() && same < facts.head.size() && here[same] == facts.head[same]) ++same;
    if (same < facts.head.size()) same = cut_before(facts.head, same, control);
    facts.core = std::min(facts.core, same);
  }
  return facts;
}

}  // namespace bantam
