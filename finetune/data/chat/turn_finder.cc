// SPDX-License-Identifier: Apache-2.0
#include "turn_finder.h"

#include <algorithm>
#include <unordered_set>

#include "../../../kernels/error.h"
#include "../../text/jinja/unicode.h"
#include "../../text/utf8.h"

namespace bantam {
namespace {

constexpr size_t npos = std::string::npos;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
                             a.begin());
}

}  // namespace

TurnFinder::TurnFinder(ConversationRenderer& renderer, const ControlText& control, const TemplateFacts& facts,
                       const std::string& text)
    : renderer_(renderer), control_(control), facts_(facts), text_(text) {}

const MarkedTexts& TurnFinder::texts() {
  if (!texts_) texts_ = list_marked_texts(renderer_.conversation().messages);
  return *texts_;
}

const std::optional<MarkAlphabet>& TurnFinder::alphabet() {
  if (!alphabet_) {
    alphabet_.emplace();
    if (texts().message.size() < MarkAlphabet::kMostTexts) {
      *alphabet_ = MarkAlphabet::unused_in(renderer_.conversation(), text_);
    }
  }
  return *alphabet_;
}

const std::vector<Mark>* TurnFinder::marks() {
  if (!marks_) {
    marks_.emplace();
    const size_t n = renderer_.size();
    if (alphabet()) *marks_ = renderer_.marks(n, false, 0, n, text_, *alphabet());
    if (*marks_) own_ = own_marks(**marks_);
  }
  return *marks_ ? &**marks_ : nullptr;
}

bool TurnFinder::has_text(size_t turn) {
  const MarkedTexts& all = texts();
  const auto [first, last] = std::equal_range(all.message.begin(), all.message.end(), static_cast<uint32_t>(turn));
  for (auto k = first; k != last; ++k)
    if (all.kind[static_cast<size_t>(k - all.message.begin())] != MarkedKind::name) return true;
  return false;
}

bool TurnFinder::left_out(size_t turn) {
  return has_text(turn) && marks() != nullptr && !own_[turn].any;
}

bool TurnFinder::has_twice(const std::vector<Mark>& marks, const Own& own) {
  if (own.count <= 2) return own.count == 2 && marks[own.first].end == marks[own.last].end;
  std::unordered_set<uint64_t> seen;
  const uint32_t message = message_of(marks[own.first]);
  for (size_t k = own.first; k <= own.last; ++k) {
    const Mark& m = marks[k];
    if (message_of(m) == message && !seen.insert(uint64_t{m.text} << 1 | (m.end ? 1 : 0)).second) return true;
  }
  return false;
}

std::vector<TurnFinder::Own> TurnFinder::own_marks(const std::vector<Mark>& marks) {
  std::vector<Own> out(renderer_.size());
  for (size_t k = 0; k < marks.size(); ++k) {
    Own& own = out[message_of(marks[k])];
    if (!own.any) own.first = k, own.begin = marks[k].at;
    own.any = true;
    own.count += 1;
    own.last = k, own.end = marks[k].at;
  }
  for (Own& own : out) {
    // All of them once: a text that is written twice does not tell where its message ends.
    own.twice = own.any && has_twice(marks, own);
    const bool behind = own.any && own.last + 1 < marks.size();
    own.next = behind ? marks[own.last + 1].at : text_.size();
  }
  return out;
}

size_t TurnFinder::marker_behind(size_t at, size_t cap, size_t* marker) const {
  while (at < cap && is_space(text_[at])) ++at;
  const std::string_view rest = std::string_view(text_).substr(at, cap - at);
  const size_t n = control_.starts(rest);
  if (n == 0 || !facts_.markers.contains(std::string(rest.substr(0, n)))) return npos;
  if (marker != nullptr) *marker = at;
  return at + n;
}

void TurnFinder::split_marker(TurnPlace& place, size_t texts_end) const {
  const size_t from = std::max(place.begin, texts_end);
  place.marker = place.end;
  for (size_t at = place.end; at > from;) {
    while (at > from && is_space(text_[at - 1])) --at;
    const std::string_view before = std::string_view(text_).substr(from, at - from);
    const size_t n = control_.ends(before);
    if (n == 0) break;
    const bool first = place.marker == place.end;
    if (!first && !facts_.doubled.contains(std::string(before.substr(before.size() - n)))) break;
    place.marker = at -= n;
  }
  place.body_end = place.marker;
}

// Where a next turn starts between the bytes; `to`: nowhere. Some templates write a head behind every last message.
size_t TurnFinder::before_opener(size_t from, size_t to) const {
  const std::string_view tail = std::string_view(text_).substr(from, to - from);
  for (const auto& opener : facts_.openers) to = std::min(to, from + std::min(tail.find(opener), tail.size()));
  return to;
}

std::string TurnFinder::between(size_t from, size_t to, const char* what) const {
  std::string key = what;
  for (size_t i = from; i <= to && i < renderer_.size(); ++i) key += renderer_.conversation().turns[i].role + '\0';
  if (to + 1 >= renderer_.size()) key += "last";
  return key + '\0';
}

// The prompt's text behind the last text of an earlier message stands behind that text in the whole as well.
std::optional<size_t> TurnFinder::anchored(size_t turn, const std::string& prompt, const std::vector<Mark>& marks,
                                           const Own& own, Window window, std::string& rest) {
  const auto found =
      renderer_.marks(turn, true, window.first, std::min(window.last, turn), prompt, *alphabet(), window.names);
  if (!found || (found->empty() && window.first > 0)) return std::nullopt;
  size_t in_prompt = 0, in_text = 0;
  const size_t cap = own.any ? own.begin : text_.size();
  if (!found->empty()) {
    const Mark& anchor = found->back();
    const auto same = std::find_if(marks.rbegin(), marks.rend(), [&](const Mark& m) {
      return m.text == anchor.text && m.end == anchor.end && m.at <= cap;
    });
    if (same == marks.rend()) return std::nullopt;
    in_prompt = anchor.at, in_text = same->at;
  }
  const std::string_view suffix = std::string_view(prompt).substr(in_prompt);
  const std::string_view here = std::string_view(text_).substr(in_text, cap - in_text);
  size_t common = common_prefix(suffix, here);
  if (common < suffix.size()) {
    const auto without = renderer_.part(turn, false);
    if (common < here.size()) {
      // As much of the head as every answer has; where the prompt has none, what both have of the turn before's end.
      if (!without || !prompt.starts_with(*without)) return std::nullopt;
      const std::string_view head = std::string_view(prompt).substr(without->size());
      const std::string_view core = std::string_view(facts_.head).substr(0, facts_.core);
      if (!head.empty() && (core.empty() || !head.starts_with(core))) return std::nullopt;
      // Nothing but the end of the turn before lies between then.
      if (head.empty() && (found->empty() || message_of(found->back()) + 1 != turn)) return std::nullopt;
      const size_t least = head.empty() ? 1 : without->size() - std::min(in_prompt, without->size()) + core.size();
      common = cut_before(suffix, common, control_);
      if (common < least) return std::nullopt;
      rest = suffix.substr(common);
      return in_text + common;
    }
    // Less than the end of the turn before: that is no place where an answer starts.
    if (!without || !prompt.starts_with(*without) || in_prompt + common < without->size()) return std::nullopt;
  }
  rest = suffix.substr(common);
  return in_text + common;
}

// The head of an answer stands before the turn's text, or as much of it as every answer has.
std::optional<size_t> TurnFinder::behind_head(size_t turn, const std::optional<std::string>& prompt,
                                              const std::vector<Mark>& marks, const Own& own, std::string& rest) {
  if (!own.any) return std::nullopt;
  std::string head = facts_.head;
  if (const auto without = renderer_.part(turn, false); prompt && without && prompt->starts_with(*without)) {
    head = prompt->substr(without->size());
  }
  const size_t core = facts_.core > 0 && head.starts_with(std::string_view(facts_.head).substr(0, facts_.core))
                          ? facts_.core
                          : head.size();
  const size_t from = own.first == 0 ? 0 : marks[own.first - 1].at;
  const std::string_view scaffold = std::string_view(text_).substr(from, own.begin - from);
  for (size_t n = head.size(); n >= core && n > 0; n = cut_before(head, n - 1, control_)) {
    const size_t at = scaffold.rfind(std::string_view(head).substr(0, n));
    if (at == npos) continue;
    rest = head.substr(n);
    return from + at + n;
  }
  // At the start of the text there is no line end before a head.
  const std::string_view bare = text_strip(head, std::nullopt, true, false);
  if (turn > 0 || bare.empty()) return std::nullopt;
  const size_t at = scaffold.rfind(bare);
  return at == npos ? std::nullopt : std::optional<size_t>(from + at + bare.size());
}

// The template writes this answer without the head that the prompt has: as a part of the turn before, or as it is. It
// is what follows that turn.
std::optional<size_t> TurnFinder::without_head(size_t turn, const std::optional<std::string>& prompt,
                                               const std::vector<Mark>* marks, const Own& own) {
  if (marks != nullptr && own.any && own.first > 0 && turn > 0) {
    const Mark& before = (*marks)[own.first - 1];
    if (message_of(before) + 1 == turn && says_model(renderer_.conversation().turns[turn - 1].role) &&
        !control_.in(std::string_view(text_).substr(before.at, own.begin - before.at))) {
      return before.at;
    }
  }
  const auto without = renderer_.part(turn, false);
  if (!prompt || !without || !prompt->starts_with(*without) || !text_.starts_with(*without)) return std::nullopt;
  const std::string_view head = std::string_view(*prompt).substr(without->size());
  const std::string_view here = std::string_view(text_).substr(without->size());
  const size_t begin = without->size() + cut_before(head, common_prefix(head, here), control_);
  if (own.any ? begin > own.begin : marker_behind(begin, text_.size()) == npos) return std::nullopt;
  return begin;
}

// The same bytes behind the turn's last text as when the conversation ended there.
std::optional<size_t> TurnFinder::end_by_tail(size_t turn, const std::string& part, const Own& own, Window window) {
  const auto found =
      renderer_.marks(turn + 1, false, window.first, std::min(window.last, turn + 1), part, *alphabet(), window.names);
  if (!found) return std::nullopt;
  const auto last = std::find_if(found->rbegin(), found->rend(), [&](const Mark& m) { return message_of(m) == turn; });
  if (last == found->rend()) return std::nullopt;
  const std::string_view tail = std::string_view(part).substr(last->at);
  const std::string_view here = std::string_view(text_).substr(own.end, own.next - own.end);
  size_t common = common_prefix(tail, here);
  if (common < tail.size()) common = cut_before(tail, common, control_);
  if (common == 0 && !tail.empty()) return std::nullopt;
  return own.end + common;
}

bool TurnFinder::verified(const TurnPlace& place, size_t turn, const std::vector<Mark>& marks, const Own& own) {
  if (own.any && (own.end < place.begin || own.end > place.end)) return false;
  // Nothing of another message.
  auto k =
      std::lower_bound(marks.begin(), marks.end(), place.begin, [](const Mark& m, size_t at) { return m.at < at; });
  for (; k != marks.end() && k->at <= place.end; ++k) {
    if (message_of(*k) == turn) continue;
    if (k->end ? k->at > place.begin : k->at < place.end) return false;
  }
  return true;
}

TurnPlace TurnFinder::answer_by(size_t turn, const std::vector<Mark>* marks, Window window) {
  const size_t n = renderer_.size();
  const bool whole = marks != nullptr && marks_ && *marks_ && marks == &**marks_;
  Own own;
  if (marks != nullptr) own = whole ? own_[turn] : own_marks(*marks)[turn];
  TurnPlace place;
  std::optional<size_t> begin, end;

  const auto kind = [&](const Mark* mark) {
    return mark == nullptr ? '-' : static_cast<char>('0' + static_cast<int>(texts().kind[mark->text]));
  };
  std::string begin_key, tail_key;
  size_t anchor = 0;
  if (whole && own.any) {
    const Mark* before = own.first == 0 ? nullptr : &(*marks)[own.first - 1];
    anchor = before == nullptr ? 0 : before->at;
    const size_t from = before == nullptr ? 0 : message_of(*before);
    if (before == nullptr || from < turn) {
      begin_key = between(from, turn, before == nullptr ? "start" : "text") + kind(before) +
                  kind(&(*marks)[own.first]) + text_.substr(anchor, own.begin - anchor);
      if (const auto known = begins_.find(begin_key); known != begins_.end()) {
        begin = anchor + known->second.first;
        place.rest = known->second.second;
        if (!place.rest.empty() && text_.compare(*begin, place.rest.size(), place.rest) == 0) begin.reset();
      }
    }
    const bool behind = own.last + 1 < marks->size();
    const size_t to = behind ? message_of((*marks)[own.last + 1]) : n - 1;
    if (to > turn) {
      tail_key = between(turn, to, behind ? "text" : "end") + kind(&(*marks)[own.last]) +
                 text_.substr(own.end, own.next - own.end);
      if (const auto known = tails_.find(tail_key); known != tails_.end()) end = own.end + known->second;
    }
  }

  std::optional<std::string> prompt, part;
  if (!begin || !end) prompt = renderer_.part(turn, true);
  if (!begin) {
    if (prompt && text_.starts_with(*prompt)) {
      begin = prompt->size();
    } else {
      if (prompt && marks != nullptr) begin = anchored(turn, *prompt, *marks, own, window, place.rest);
      if (!begin && marks != nullptr) begin = behind_head(turn, prompt, *marks, own, place.rest);
      if (!begin) begin = without_head(turn, prompt, marks, own);
    }
    if (!begin) return {};
    if (!begin_key.empty() && *begin >= anchor && *begin <= own.begin) {
      begins_.emplace(begin_key, std::pair(*begin - anchor, place.rest));
    }
  }
  place.begin = *begin;

  bool both = false;  // both renderings are beginnings of the whole: what is between them is the turn
  if (!end && turn + 1 == n) {
    end = text_.size() - (text_.ends_with(facts_.trailer) ? facts_.trailer.size() : 0);
    both = prompt && text_.starts_with(*prompt);
  } else if (!end) {
    part = renderer_.part(turn + 1, false);
    if (part && prompt && part->starts_with(*prompt)) {
      const std::string_view answer = std::string_view(*part).substr(prompt->size());
      const bool same = std::string_view(text_).substr(*begin).starts_with(answer);
      const size_t stop = *begin + answer.size();
      if (same && (!own.any || (own.end <= stop && stop <= own.next))) end = stop;
      both = same && *begin == prompt->size();
      if (!end && !own.any && !window.exact) {
        const size_t common = common_prefix(answer, std::string_view(text_).substr(*begin));
        if (const size_t cut = cut_before(answer, common, control_); cut > 0) end = *begin + cut;
      }
    }
    if (!end && own.any && part) end = end_by_tail(turn, *part, own, window);
    if (!end && !own.any && window.exact) return {};
    if (!end) {
      const size_t from = own.any ? std::max(own.end, *begin) : *begin;
      const size_t stop = marker_behind(from, own.any ? own.next : text_.size());
      if (stop == npos && !own.any && has_text(turn) && marks == nullptr) return {};
      end = stop == npos ? from : stop;
      if (stop != npos && std::string_view(text_).substr(stop).starts_with(facts_.line_ends)) {
        *end += facts_.line_ends.size();
      }
    }
    // A marker that is written only when another turn follows.
    place.end = *end;
    split_marker(place, own.end);
    if (place.marker == place.end && !facts_.eos.empty() && text_.compare(*end, facts_.eos.size(), facts_.eos) == 0) {
      *end += facts_.eos.size();
    }
    if (!tail_key.empty() && *end >= own.end && *end <= own.next) tails_.emplace(tail_key, *end - own.end);
  }
  place.end = *end;
  if (place.end < place.begin) return {};
  if (own.end <= place.end) place.end = before_opener(std::max(place.begin, own.end), place.end);

  if (marks != nullptr) {
    if (!verified(place, turn, *marks, own)) return {};
  } else if (!both) {
    const std::string_view span = std::string_view(text_).substr(place.begin, place.end - place.begin);
    for (const auto piece : marked_texts_of(renderer_.conversation().messages.items()[turn]))
      if (text_find(span, piece) == npos) return {};
  }
  split_marker(place, own.end);
  if (place.marker < place.end) {
    // White space behind the marker, other than line ends, is of the text between turns.
    const size_t stop = place.end;
    while (is_space(text_[place.end - 1])) --place.end;
    while (place.end < stop && (text_[place.end] == '\n' || text_[place.end] == '\r')) ++place.end;
  }
  place.found = true;
  return place;
}

TurnPlace TurnFinder::answer(size_t turn) {
  const size_t n = renderer_.size();
  const JinjaValue* calls = renderer_.conversation().messages.items()[turn].find("tool_calls");
  const bool called = calls != nullptr && calls->is(JinjaValue::Kind::sequence) && !calls->items().empty();
  const std::vector<Mark>* all = marks();
  if (all != nullptr && !own_[turn].twice) {
    const TurnPlace place = answer_by(turn, all, {0, n, false, called});
    if (place.found || !called || own_[turn].any) return place;
  }
  if (alphabet()) {
    std::vector<Window> windows;
    // Names may be written again in later messages, so that they are marked only where there is nothing else.
    for (const size_t first : {turn - (turn > 0), turn}) {
      if (called && all != nullptr) windows.push_back({first, turn + 1, true, false});
    }
    for (const size_t first : {turn - (turn > 0), turn}) windows.push_back({first, turn + 1, false, false});
    for (const Window& window : windows) {
      const auto some = renderer_.marks(n, false, window.first, window.last, text_, *alphabet(), window.names);
      if (!some || own_marks(*some)[turn].twice) continue;
      if (const TurnPlace place = answer_by(turn, &*some, window); place.found) return place;
    }
  }
  return answer_by(turn, nullptr, {});
}

// White space around the text at begin to end that is of the message, not of the template: without it in the message it
// is not there.
std::pair<size_t, size_t> TurnFinder::outer_space(size_t turn, size_t begin, size_t end) {
  const auto& messages = renderer_.conversation().messages.items();
  const JinjaValue* content = messages[turn].find("content");
  if (content == nullptr || !content->is(JinjaValue::Kind::string)) return {};
  const std::string_view whole = content->text();
  const std::string_view bare = text_strip(whole, std::nullopt, true, true);
  if (bare.size() == whole.size()) return {};
  JinjaValue::List changed = messages;
  JinjaValue::Entries entries;
  for (const auto& [key, value] : messages[turn].entries()) {
    const bool here = key.is(JinjaValue::Kind::string) && key.text() == "content";
    entries.emplace_back(key, here ? JinjaValue(std::string(bare)) : value);
  }
  changed[turn] = JinjaValue::dict(std::move(entries));
  const auto text = renderer_.of(JinjaValue::list(std::move(changed)));
  const auto left = static_cast<size_t>(bare.data() - whole.data()), right = whole.size() - left - bare.size();
  for (const auto& [a, b] : {std::pair(left, right), std::pair(left, size_t{0}), std::pair(size_t{0}, right)}) {
    if (!text || a > begin || b > text_.size() - end || text->size() + a + b != text_.size()) continue;
    const std::string_view here = text_;
    if (text->starts_with(here.substr(0, begin - a)) && text->ends_with(here.substr(end + b)) &&
        text->compare(begin - a, end - begin, here, begin, end - begin) == 0) {
      return {a, b};
    }
  }
  return {};
}

TurnPlace TurnFinder::content(size_t turn) {
  const size_t n = renderer_.size();
  std::optional<std::vector<Mark>> some;
  const std::vector<Mark>* all = marks();
  if (all == nullptr && alphabet()) {
    some = renderer_.marks(n, false, turn, turn + 1, text_, *alphabet());
    if (some) all = &*some;
  }
  TurnPlace place;
  if (all == nullptr) return place;
  const Own own = some ? own_marks(*all)[turn] : own_[turn];
  if (!own.any) return place;
  const auto [left, right] = outer_space(turn, own.begin, own.end);
  place.begin = own.begin - left;
  place.body_end = place.end = place.marker = own.end + right;
  const size_t end = marker_behind(place.end, own.next, &place.marker);
  if (end != npos) place.end = end;
  place.found = verified(place, turn, *all, own);
  return place;
}

}  // namespace bantam
