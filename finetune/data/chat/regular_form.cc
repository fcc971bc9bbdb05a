// SPDX-License-Identifier: Apache-2.0
#include "regular_form.h"

#include "../../../kernels/error.h"
#include "../../text/jinja/unicode.h"

namespace bantam {

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
  const Conversation conversation = sample_conversation({roles.begin(), roles.end()}, false);
  ConversationRenderer renderer(chat_template, conversation, facts.trailer);
  const auto text = renderer.part(roles.size(), false);
  if (!text) return;
  TurnFinder finder(renderer, control, facts, *text);
  Role earlier = kStart;
  size_t from = 0;
  Link link;  // what is known of the one that is being read
  for (size_t i = 0; i < roles.size(); ++i) {
    const size_t at = text->find(sample_text(i), from);
    if (at == std::string::npos) return;
    const size_t text_end = at + sample_text(i).size();
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
        if (value.text() == sample_role(r)) role = r;
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
