// SPDX-License-Identifier: Apache-2.0
// Where each turn of a conversation stands in its rendering, found by rendering parts of it and comparing.
#pragma once
#include <ctime>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../text/chat_template.h"
#include "text_marks.h"

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

/// Whether turns of this role are what the model says.
inline bool says_model(std::string_view role) {
  return role == "assistant" || role == "model";
}

/// What is known of a template before any row.
struct TemplateFacts {
  std::string head;                         ///< what add_generation_prompt adds
  size_t core = 0;                          ///< bytes of it that stand before every answer
  std::string eos;                          ///< may be empty
  std::unordered_set<std::string> markers;  ///< control tokens that end a turn
  std::unordered_set<std::string> doubled;  ///< those of them that may stand behind another one
  std::string line_ends;                    ///< behind the marker of an answer
  std::string trailer;                      ///< white space at the end of every rendering, behind a head too
  std::vector<std::string> openers;         ///< control tokens that start a turn
};

/// Where `text` can be cut at or before `length`: behind a control token or a line end.
size_t cut_before(std::string_view text, size_t length, const ControlText& control);

/// One conversation, rendered as often as needed, within a limit.
class ConversationRenderer {
 public:
  /// `trailer`: taken from the ends of parts.
  ConversationRenderer(const ChatTemplate& chat_template, const Conversation& conversation, std::string trailer = {});
  ConversationRenderer(const ConversationRenderer&) = delete;

  /// The first `count` messages. Errors of the template are thrown.
  Rendered render(const JinjaValue& messages, bool prompt);
  Rendered render(const JinjaValue& messages, const JinjaValue& tools, JinjaValue::Entries variables, bool prompt);
  /// None: the template refuses.
  std::optional<std::string> part(size_t count, bool prompt);
  std::optional<std::string> of(const JinjaValue& messages, bool prompt = false);
  /// Marks of the messages from `first` to before `last` among the first `count`, where they change nothing else:
  /// without them the rendering is `plain`, with the trailer or without.
  std::optional<std::vector<Mark>> marks(size_t count, bool prompt, size_t first, size_t last, std::string_view plain,
                                         const MarkAlphabet& alphabet, bool names = false);
  const Conversation& conversation() const { return conversation_; }
  size_t size() const { return conversation_.messages.items().size(); }

 private:
  const ChatTemplate& template_;
  const Conversation& conversation_;
  JinjaValue::Entries variables_;
  JinjaOptions options_;
  std::string trailer_;
  std::optional<std::tm> now_;  // the same for all renderings of a conversation
  size_t renderings_ = 0, bytes_ = 0;
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
