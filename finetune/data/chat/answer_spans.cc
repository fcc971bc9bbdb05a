// SPDX-License-Identifier: Apache-2.0
#include "answer_spans.h"

#include <algorithm>

#include "../../../kernels/error.h"
#include "../../text/jinja/unicode.h"
#include "../../text/utf8.h"
#include "regular_form.h"
#include "text_marks.h"
#include "turn_finder.h"

namespace bantam {
namespace {

constexpr size_t npos = std::string::npos;
using Kind = JinjaValue::Kind;

std::vector<std::string> with(std::vector<std::string> texts, const std::string& one) {
  texts.push_back(one);
  return texts;
}

std::string name_of(const Conversation& conversation, size_t turn) {
  return str("messages[", turn, "] (", printable(conversation.turns[turn].role, 40), ")");
}

/// Where control tokens' texts of the messages stand in the rendering.
std::vector<TextSpan> plain_spans(ConversationRenderer& renderer, const ControlText& control, const std::string& text,
                                  bool prompt) {
  const Conversation& c = renderer.conversation();
  // A row may name special tokens of its own; those are the template's.
  const auto is_token = [](const JinjaValue& key) { return key.is(Kind::string) && key.text().ends_with("_token"); };
  bool any = has_control_text(c.messages, control) || has_control_text(c.tools, control);
  for (const auto& [key, value] : renderer.variables())
    any = any || (!is_token(key) && has_control_text(value, control));
  if (!any) return {};
  const auto refuse = [](const std::string& why) -> Error {
    return Error(ErrorCode::data,
                 "a message or a tool has the text of a control token, which is trained as plain text; " + why,
                 "take that text out of the row, or leave the row out");
  };
  const auto alphabet = MarkAlphabet::unused_in(c, text);
  if (!alphabet) throw refuse("it cannot be followed through the template, because the row has noncharacters (U+FDD0)");
  JinjaValue::Entries variables;
  for (const auto& [key, value] : renderer.variables())
    variables.emplace_back(key, is_token(key) ? value : mark_control_text(value, control, *alphabet));
  std::optional<MarkAlphabet::Read> read;
  try {
    read = alphabet->read(renderer
                              .render(mark_control_text(c.messages, control, *alphabet),
                                      mark_control_text(c.tools, control, *alphabet), std::move(variables), prompt)
                              .text,
                          0);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::data) throw;
  }
  if (!read || read->text != text) throw refuse("the template itself looks at it or changes it");
  return std::move(read->control);
}

}  // namespace

struct AnswerSpans::Parts {
  std::shared_ptr<const ChatTemplate> chat_template;
  MaskOptions options;
  ControlText control;
  TemplateFacts facts, facts_with_tools;
  RegularForm form;

  std::vector<TurnPlace> tagged(const Conversation& conversation, const Rendered& rendered, TurnFinder& finder,
                                const std::vector<uint8_t>& wanted) const;
  std::vector<std::vector<TextSpan>> spans_of_turns(const Conversation& conversation,
                                                    const std::vector<TextSpan>& spans, TurnFinder& finder) const;
};

AnswerSpans::AnswerSpans(std::shared_ptr<const ChatTemplate> chat_template, std::vector<std::string> control_tokens,
                         std::string eos, MaskOptions options) {
  ControlText control(with(std::move(control_tokens), eos));
  TemplateFacts facts = learn_facts(*chat_template, control, eos, false);
  TemplateFacts with_tools = learn_facts(*chat_template, control, eos, true);
  RegularForm form = RegularForm::learn(*chat_template, control, facts);
  parts_ = std::make_shared<Parts>(Parts{std::move(chat_template), std::move(options), std::move(control),
                                         std::move(facts), std::move(with_tools), std::move(form)});
}

// Which tagged spans belong to which message: by the marked texts that they hold, the others by their order.
std::vector<std::vector<TextSpan>> AnswerSpans::Parts::spans_of_turns(const Conversation& conversation,
                                                                      const std::vector<TextSpan>& spans,
                                                                      TurnFinder& finder) const {
  const size_t n = conversation.turns.size();
  std::vector<std::vector<TextSpan>> out(n);
  std::vector<size_t> answers;
  for (size_t i = 0; i < n; ++i)
    if (says_model(conversation.turns[i].role)) answers.push_back(i);
  const auto unclear = [&](const std::string& what) {
    return Error(ErrorCode::data,
                 str("the template's {% generation %} tags mark ", spans.size(), " texts for ", answers.size(),
                     " assistant messages: ", what),
                 "tag each assistant message once in the template, or use a template without tags");
  };
  const std::vector<Mark>* marks = finder.marks();
  if (marks == nullptr) {
    if (spans.size() != answers.size()) throw unclear("which belongs to which is not clear");
    for (size_t k = 0; k < spans.size(); ++k) out[answers[k]].push_back(spans[k]);
    return out;
  }
  std::vector<size_t> owner(spans.size(), npos);
  for (size_t k = 0; k < spans.size(); ++k) {
    auto m = std::lower_bound(marks->begin(), marks->end(), spans[k].begin,
                              [](const Mark& mark, size_t at) { return mark.at < at; });
    for (; m != marks->end() && m->at <= spans[k].end; ++m) {
      const bool inside = m->end ? m->at > spans[k].begin : m->at < spans[k].end;
      if (!inside) continue;
      const size_t message = finder.message_of(*m);
      if (owner[k] != npos && owner[k] != message) {
        throw unclear(
            str("one holds text of ", name_of(conversation, owner[k]), " and of ", name_of(conversation, message)));
      }
      owner[k] = message;
    }
  }
  // Spans without text: of the messages between those of their neighbours, one each; otherwise one that follows right
  // behind another is of the same message.
  for (size_t k = 0; k < spans.size();) {
    if (owner[k] != npos) {
      ++k;
      continue;
    }
    size_t to = k;
    while (to < spans.size() && owner[to] == npos) ++to;
    const size_t before = k == 0 ? npos : owner[k - 1], after = to == spans.size() ? n : owner[to];
    std::vector<size_t> blank;
    for (const size_t i : answers)
      if ((before == npos || i > before) && i < after) blank.push_back(i);
    const bool each = blank.size() == to - k;
    size_t next = 0;
    for (; k < to; ++k) {
      const bool follows = k > 0 && spans[k - 1].end == spans[k].begin;
      if (!each && (follows || blank.empty()) && k > 0) {
        owner[k] = owner[k - 1];
      } else if (next < blank.size()) {
        owner[k] = blank[next++];
      } else {
        throw unclear("which belongs to which is not clear");
      }
    }
    if (!blank.empty() && next != blank.size()) throw unclear("which belongs to which is not clear");
  }
  for (size_t k = 0; k < spans.size(); ++k) out[owner[k]].push_back(spans[k]);
  return out;
}

std::vector<TurnPlace> AnswerSpans::Parts::tagged(const Conversation& conversation, const Rendered& rendered,
                                                  TurnFinder& finder, const std::vector<uint8_t>& wanted) const {
  const std::string_view text = rendered.text;
  const size_t n = conversation.turns.size();
  std::vector<TextSpan> spans;
  for (const JinjaSpan s : rendered.generation)
    if (s.end > s.begin) spans.push_back({s.begin, s.end});

  std::vector<size_t> texts_end(n, 0);
  std::vector<std::vector<TextSpan>> of(n);
  size_t k = 0;
  bool plain = true;  // one span for each assistant message, with its text
  for (size_t i = 0; i < n && plain; ++i) {
    if (!says_model(conversation.turns[i].role)) continue;
    if (k == spans.size()) {
      plain = false;
      break;
    }
    of[i] = {spans[k++]};
    const JinjaValue* content = conversation.messages.items()[i].find("content");
    const TextSpan s = of[i][0];
    if (content == nullptr || content->is(Kind::none)) continue;
    if (!content->is(Kind::string)) {
      plain = false;
      break;
    }
    std::string_view said = content->text();
    if (const size_t think = said.rfind("</think>"); think != npos) said.remove_prefix(think + 8);
    said = text_strip(said, std::nullopt, true, true);
    const size_t at = text_find(text.substr(s.begin, s.end - s.begin), said);
    plain = at != npos;
    texts_end[i] = s.begin + (plain ? at + said.size() : 0);
  }
  if (!plain || k != spans.size()) {
    of = spans_of_turns(conversation, spans, finder);
    std::fill(texts_end.begin(), texts_end.end(), 0);
    if (const auto* marks = finder.marks()) {
      for (const Mark& m : *marks) texts_end[finder.message_of(m)] = m.at;
    }
  }

  std::vector<TurnPlace> out(n);
  for (size_t i = 0; i < n; ++i) {
    if (of[i].empty()) {
      if (!wanted[i] || !says_model(conversation.turns[i].role) || finder.left_out(i)) continue;
      throw Error(
          ErrorCode::data,
          str(name_of(conversation, i), ": the template has {% generation %} tags, but none around this message"),
          "tag each assistant message in the template, use a template without tags, or set \"train\": false on "
          "the message");
    }
    TurnPlace& place = out[i];
    place.found = true;
    place.begin = of[i].front().begin;
    place.end = of[i].back().end;
    const size_t texts = std::min(texts_end[i], place.end);
    finder.split_marker(place, texts);
    if (place.marker == place.end) {  // only the text is tagged
      size_t marker = 0;
      const size_t end = finder.marker_behind(place.end, text.size(), &marker);
      if (end != npos) place.body_end = place.end, place.marker = marker, place.end = end;
    }
  }
  return out;
}

AnsweredText AnswerSpans::prompt(const Conversation& conversation) const {
  ConversationRenderer renderer(*parts_->chat_template, conversation);
  AnsweredText out;
  out.text = renderer.render(conversation.messages, true).text;
  out.plain = plain_spans(renderer, parts_->control, out.text, true);
  return out;
}

AnsweredText AnswerSpans::render(const Conversation& conversation) const {
  const Parts& p = *parts_;
  const MaskOptions& options = p.options;
  const size_t n = conversation.turns.size();
  if (!conversation.messages.is(Kind::sequence) || conversation.messages.items().size() != n) {
    throw Error(ErrorCode::internal, "a conversation needs one turn per message");
  }
  ConversationRenderer renderer(*p.chat_template, conversation, p.facts.trailer);
  Rendered rendered = renderer.render(conversation.messages, false);
  AnsweredText out;
  out.plain = plain_spans(renderer, p.control, rendered.text, false);
  if (options.train_on_inputs) {
    if (!rendered.text.empty()) out.trained.push_back({{0, rendered.text.size()}, 0, 1});
    out.text = std::move(rendered.text);
    return out;
  }

  std::vector<uint8_t> wanted(n);
  bool any = false, named = false;
  for (size_t i = 0; i < n; ++i) {
    const Turn& turn = conversation.turns[i];
    const bool role = std::find(options.roles_to_train.begin(), options.roles_to_train.end(), turn.role) !=
                      options.roles_to_train.end();
    wanted[i] = turn.train.value_or(role) && turn.weight.value_or(1) > 0;
    named |= role;
    any |= wanted[i] != 0;
  }
  if (!any) {
    if (!named) {
      std::string roles, trained;
      for (const Turn& turn : conversation.turns) {
        if (roles.find(turn.role) == npos && roles.size() < 200) roles += (roles.empty() ? "" : ", ") + turn.role;
      }
      for (const auto& role : options.roles_to_train) trained += (trained.empty() ? "" : ", ") + role;
      throw Error(ErrorCode::data,
                  str("no message is trained: the roles are ", printable(roles), ", roles_to_train has ",
                      trained.empty() ? "none" : printable(trained)),
                  "name the role that is to be learned in roles_to_train, or leave the row out");
    }
    out.text = std::move(rendered.text);
    return out;
  }

  TurnFinder finder(renderer, p.control, conversation.tools.is(Kind::none) ? p.facts : p.facts_with_tools,
                    rendered.text);
  std::vector<TurnPlace> places;
  const bool tags = std::any_of(rendered.generation.begin(), rendered.generation.end(),
                                [](const JinjaSpan& s) { return s.end > s.begin; });
  const bool all = options.train_on_eos == TrainOnEos::all;
  if (tags) places = p.tagged(conversation, rendered, finder, wanted);
  if (!tags) {
    if (auto regular = p.form.places(conversation, rendered.text)) places = std::move(*regular);
  }
  if (places.empty()) places.resize(n);
  size_t last = n;  // the last trained turn
  for (size_t i = 0; i < n; ++i) {
    const bool answer = says_model(conversation.turns[i].role);
    if (!places[i].found && (wanted[i] || all) && !(tags && answer)) {
      places[i] = answer ? finder.answer(i) : finder.content(i);
      if (!places[i].found && wanted[i] && !finder.left_out(i) && (answer || finder.has_text(i))) {
        throw Error(ErrorCode::data,
                    str(name_of(conversation, i), ": where the template writes this message could not be found"),
                    "use a chat template with {% generation %} tags, or set \"train\": false on the message");
      }
    }
    if (wanted[i] && places[i].found && places[i].end > places[i].begin) last = i;
  }

  const auto add = [&](size_t begin, size_t end, size_t turn, float weight) {
    if (end > begin) out.trained.push_back({{begin, end}, static_cast<uint32_t>(turn), weight});
  };
  for (size_t i = 0; i < n; ++i) {
    const TurnPlace& place = places[i];
    if (!place.found) continue;
    const float weight = conversation.turns[i].weight.value_or(1);
    if (wanted[i]) {
      const bool marker =
          options.train_on_eos == TrainOnEos::turn || all || (options.train_on_eos == TrainOnEos::last && i == last);
      add(place.begin, marker ? place.end : place.body_end, i, weight);
    } else if (all) {
      add(place.marker, place.end, i, 1);
    }
  }
  std::stable_sort(out.trained.begin(), out.trained.end(),
                   [](const auto& a, const auto& b) { return a.bytes.begin < b.bytes.begin; });
  size_t trained_bytes = 0, behind = 0;
  for (const TrainedSpan& span : out.trained) {
    if (span.bytes.begin < behind) {
      throw Error(ErrorCode::data,
                  str(name_of(conversation, span.turn), ": the template writes this message inside of another one"),
                  "use a chat template with {% generation %} tags");
    }
    behind = span.bytes.end;
  }
  for (const TrainedSpan& span : out.trained) trained_bytes += span.bytes.end - span.bytes.begin;
  if (last == n || out.trained.empty()) {
    size_t first = 0;
    while (!wanted[first]) ++first;
    throw Error(ErrorCode::data,
                str(name_of(conversation, first), ": nothing of it is trained, because the template leaves it out"),
                "use a template that writes such messages, or leave the row out");
  }
  if (trained_bytes == rendered.text.size()) {
    throw Error(ErrorCode::data, "every byte of the rendered conversation would be trained: it has no prompt",
                "set train_on_inputs: true where that is wanted, or use dataset type text");
  }
  out.text = std::move(rendered.text);
  return out;
}

}  // namespace bantam
