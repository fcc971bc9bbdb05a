// SPDX-License-Identifier: Apache-2.0
// Where each turn of a conversation stands in its rendering, found by rendering parts of it and comparing.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "conversation_renderer.h"
#include "template_facts.h"

namespace bantam {

/// Bytes of one turn, in order.
struct TurnPlace {
  bool found = false;
  size_t begin = 0;     ///< what the model is to say
  size_t body_end = 0;  ///< end of it without the end-of-turn marker
  size_t marker = 0;    ///< the marker; == end: there is none
  size_t end = 0;       ///< with the marker and the line end that belongs to it
  std::string rest;     ///< what the prompt has more than the rendering before `begin`
};

class TurnFinder {
 public:
  /// `text`: the whole rendering. All are kept by reference.
  TurnFinder(ConversationRenderer& renderer, const ControlText& control, const TemplateFacts& facts,
             const std::string& text);

  /// Of a turn that the model says, from the end of its prompt.
  TurnPlace answer(size_t turn);
  /// Of any turn: its texts and the marker behind.
  TurnPlace content(size_t turn);
  /// Whether the message has texts that could be marked.
  bool has_text(size_t turn);
  /// Whether the rendering has none of the message's texts although it has some; known only where marks work.
  bool left_out(size_t turn);
  /// Marks of the whole rendering; null: they would change it.
  const std::vector<Mark>* marks();
  uint32_t message_of(const Mark& mark) { return texts().message[mark.text]; }
  /// Sets body_end and marker from where the texts of the turn end, at or behind `begin`, and `end`.
  void split_marker(TurnPlace& place, size_t texts_end) const;
  /// End of the end-of-turn marker that stands at `at`, behind white space or not, before `cap`; npos: none. `marker`:
  /// where it begins.
  size_t marker_behind(size_t at, size_t cap, size_t* marker = nullptr) const;

 private:
  struct Window {
    size_t first = 0, last = 0;
    bool names = false;  // of called functions, too
    bool exact = false;  // a turn without marks ends only where the rendering up to it ends
  };
  struct Own {  // marks of one message
    bool any = false, twice = false;
    size_t count = 0;
    size_t begin = 0, end = 0;   // bytes
    size_t first = 0, last = 0;  // indices of marks
    size_t next = 0;             // byte of the next mark of another message behind, or the end of the text
  };
  const MarkedTexts& texts();
  const std::optional<MarkAlphabet>& alphabet();
  std::vector<Own> own_marks(const std::vector<Mark>& marks);  // of each message
  bool has_twice(const std::vector<Mark>& marks, const Own& own);
  TurnPlace answer_by(size_t turn, const std::vector<Mark>* marks, Window window);
  std::optional<size_t> anchored(size_t turn, const std::string& prompt, const std::vector<Mark>& marks, const Own& own,
                                 Window window, std::string& rest);
  std::optional<size_t> behind_head(size_t turn, const std::optional<std::string>& prompt,
                                    const std::vector<Mark>& marks, const Own& own, std::string& rest);
  std::optional<size_t> without_head(size_t turn, const std::optional<std::string>& prompt,
                                     const std::vector<Mark>* marks, const Own& own);
  std::optional<size_t> end_by_tail(size_t turn, const std::string& part, const Own& own, Window window);
  bool verified(const TurnPlace& place, size_t turn, const std::vector<Mark>& marks, const Own& own);
  size_t before_opener(size_t from, size_t to) const;
  std::pair<size_t, size_t> outer_space(size_t turn, size_t begin, size_t end);
  std::string between(size_t from, size_t to, const char* what) const;

  ConversationRenderer& renderer_;
  const ControlText& control_;
  const TemplateFacts& facts_;
  const std::string& text_;
  std::optional<MarkedTexts> texts_;  // made when first asked for, like the rest
  std::optional<std::optional<MarkAlphabet>> alphabet_;
  std::optional<std::optional<std::vector<Mark>>> marks_;
  std::vector<Own> own_;  // of each message, in marks_
  // What was found once holds for turns with the same text around them.
  std::unordered_map<std::string, std::pair<size_t, std::string>> begins_;  // offset from the text before; rest
  std::unordered_map<std::string, size_t> tails_;                           // offset from the turn's last text
};

}  // namespace bantam
