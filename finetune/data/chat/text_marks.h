// SPDX-License-Identifier: Apache-2.0
// Marks in the texts of a conversation that survive rendering: they tell which bytes of the result come from which
// message. A mark is made of code points that stand nowhere else in the conversation.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control_text.h"
#include "conversation.h"

namespace bantam {

/// One end of a marked text, where it stood in the rendering without marks.
struct Mark {
  uint32_t text = 0;  ///< number of the marked text
  bool end = false;
  size_t at = 0;
  bool operator==(const Mark&) const = default;
};

/// 32 code points in a row.
class MarkAlphabet {
 public:
  static constexpr size_t kMostTexts = size_t{1} << 24;
  /// Noncharacters, else of the private use planes; none: the conversation or its rendering has some of each.
  static std::optional<MarkAlphabet> unused_in(const Conversation& conversation, std::string_view rendered);

  void append(std::string& out, uint32_t text, bool end) const;
  void append_control(std::string& out, bool end) const;

  struct Read {
    std::string text;               ///< without marks
    std::vector<Mark> marks;        ///< in order
    std::vector<TextSpan> control;  ///< between control marks, in order, without overlaps
  };
  /// None: something is left of a mark that was cut, or is none of `texts` marked texts.
  std::optional<Read> read(std::string_view marked, size_t texts) const;

 private:
  explicit MarkAlphabet(uint32_t base) : base_(base) {}
  uint32_t base_;
};

/// What a marked text is: the answer itself, its reasoning, arguments of a tool call, the name of a called function.
enum class MarkedKind : uint8_t { content, reasoning, arguments, name };

/// The texts of a conversation that can be marked: numbered in order, the same for any first messages of it.
struct MarkedTexts {
  std::vector<uint32_t> message;  ///< of each text
  std::vector<MarkedKind> kind;
};
MarkedTexts list_marked_texts(const JinjaValue& messages);
/// Those of one message; they live as long as it.
std::vector<std::string_view> marked_texts_of(const JinjaValue& message);

/// The first `count` messages; those from `first` to before `last` with marks around their texts. Marks stand inside of
/// outer white space and of <think> tags, so that templates which strip or split still do.
/// Names are marked only with `names`. `texts`: how many there are in those messages.
JinjaValue mark_texts(const JinjaValue& messages, size_t count, size_t first, size_t last, const MarkAlphabet& alphabet,
                      bool names, size_t* texts);

/// The value with control marks around texts of control tokens in every string of it, keys included.
JinjaValue mark_control_text(const JinjaValue& value, const ControlText& control, const MarkAlphabet& alphabet);
/// Whether a string of it, keys included, has the text of a control token.
bool has_control_text(const JinjaValue& value, const ControlText& control);

}  // namespace bantam
