// SPDX-License-Identifier: Apache-2.0
#include "regular_form.h"

#include <algorithm>

#include "../../kernels/error.h"
#include "../text/jinja/unicode.h"

namespace bantam {
namespace {

constexpr const char* kRoles[] = {"system", "user", "assistant"};
constexpr const char* kTexts[] = {"Alpha beta", "Gamma delta", "Epsilon zeta", "Eta theta", "Iota kappa", "Lambda mu"};

Conversation conversation_of(const std::vector<int>& roles, bool with_tools) {
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

std::optional<std::string> rendered(const ChatTemplate& chat_template, const std::vector<int>& roles, bool prompt,
                                    bool with_tools, const std::string& trailer) {
  const Conversation conversation = conversation_of(roles, with_tools);
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

RegularForm RegularForm::learn(const ChatTemplate& chat_template, const ControlText& control,
                               const TemplateFacts& facts) {
  RegularForm out;
  for (const auto& roles : {std::vector<Role>{kUser, kAssistant},
                            {kSystem, kUser, kAssistant},
                            {kUser, kAssistant, kUser, kAssistant},
                            {kSystem, kUser, kAssistant, kUser, kAssistant},
                            {kUser, kAssistant, kUser, kAssistant, kUser, kAssistant}}) {
    out.learn_from(chat_template, control, facts, roles);
  }
  return out;
}

void RegularForm::set(std::optional<Link>& place, Link link) {
  if (!place) {
    place = std::move(link);
  } else if (!(*place == link)) {
    place->clear = false;
  }
}

void RegularForm::learn_from(const ChatTemplate& chat_template, const ControlText& control, const TemplateFacts& facts,
                             const std::vector<Role>& roles) {
  const Conversation conversation = conversation_of({roles.begin(), roles.end()}, false);
  ConversationRenderer renderer(chat_template, conversation, facts.trailer);
  const auto text = renderer.part(roles.size(), false);
  if (!text) return;
  TurnFinder finder(renderer, control, facts, *text);
  Role earlier = kStart;
  size_t from = 0;
  Link link;  // what is known of the one that is being read
  for (size_t i = 0; i < roles.size(); ++i) {
    const size_t at = text->find(kTexts[i], from);
    if (at == std::string::npos) return;
    const size_t text_end = at + std::string_view(kTexts[i]).size();
    const TurnPlace place = roles[i] == kAssistant ? finder.answer(i) : finder.content(i);
    // An answer that starts inside of its text, or ends before it does, is for the finder.
    if (!place.found || place.begin < from || place.begin > at || place.body_end < text_end) return;
    link.text = text->substr(from, at - from);
    link.begin = place.begin - from;
    link.rest = place.rest;
    const bool last = i + 1 == roles.size();
    set(links_[earlier][roles[i]][last], std::move(link));
    link = {};
    link.body_end = place.body_end - text_end;
    link.marker = place.marker - text_end;
    link.end = place.end - text_end;
    earlier = roles[i];
    from = text_end;
  }
  link.text = text->substr(from);
  set(ends_[earlier], std::move(link));
}

std::optional<RegularForm::Role> RegularForm::role_of(const JinjaValue& message, const std::string** content) {
  using Kind = JinjaValue::Kind;
  if (!message.is(Kind::dict)) return std::nullopt;
  std::optional<Role> role;
  *content = nullptr;
  for (const auto& [key, value] : message.entries()) {
    if (!key.is(Kind::string)) return std::nullopt;
    if (key.text() == "role" && value.is(Kind::string)) {
      for (const Role r : {kSystem, kUser, kAssistant})
        if (value.text() == kRoles[r]) role = r;
    } else if (key.text() == "content" && value.is(Kind::string)) {
      *content = &value.text();
    } else if (!value.is(Kind::none)) {
      return std::nullopt;
    }
  }
  return *content == nullptr ? std::nullopt : role;
}

std::optional<std::vector<TurnPlace>> RegularForm::places(const Conversation& conversation,
                                                          const std::string& text) const {
  if (!conversation.tools.is(JinjaValue::Kind::none) || !conversation.variables.empty()) return std::nullopt;
  const auto& items = conversation.messages.items();
  std::vector<TurnPlace> out(items.size());
  const auto starts = [&](size_t at, std::string_view what) {
    return std::string_view(text).substr(at).starts_with(what);
  };
  bool known = true;  // a turn that is not an answer, and has no text, is nowhere
  const auto close = [&](TurnPlace& place, size_t at, const Link& link) {
    place.body_end = at + link.body_end, place.marker = at + link.marker, place.end = at + link.end;
    place.found = known;
  };
  Role earlier = kStart;
  size_t at = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string* content = nullptr;
    const auto role = role_of(items[i], &content);
    if (!role) return std::nullopt;
    const auto& link = links_[earlier][*role][i + 1 == items.size()];
    if (!link || !link->clear || !starts(at, link->text)) return std::nullopt;
    if (i > 0) close(out[i - 1], at, *link);
    out[i].begin = at + link->begin;
    if (!link->rest.empty() && starts(out[i].begin, link->rest)) return std::nullopt;
    at += link->text.size();
    std::string_view written = *content;
    if (!starts(at, written)) {
      written = text_strip(written, std::nullopt, true, true);
      if (!starts(at, written)) return std::nullopt;
    }
    at += written.size();
    known = *role == kAssistant || !text_strip(*content, std::nullopt, true, true).empty();
    earlier = *role;
  }
  if (earlier == kStart) return std::nullopt;
  const auto& end = ends_[earlier];
  if (!end || !end->clear || std::string_view(text).substr(at) != end->text) return std::nullopt;
  close(out.back(), at, *end);
  return out;
}

}  // namespace bantam
