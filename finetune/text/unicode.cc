// SPDX-License-Identifier: Apache-2.0
#include "unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "../../kernels/error.h"
#include "unicode_age.h"
#include "utf8.h"

namespace bantam {
namespace {

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool between(uint32_t c, uint32_t first, uint32_t last) {
  return c >= first && c <= last;
}

template <size_t n>
bool among(const CodeRange (&ranges)[n], uint32_t c) {
  const auto* it = std::lower_bound(ranges, ranges + n, c, [](const CodeRange& r, uint32_t x) { return r.last < x; });
  return it != ranges + n && it->first <= c;
}

// Bytes of the longest start of a valid sequence; `s` is not empty and does not start with a valid one.
size_t maximal_part(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint32_t b0 = byte(0);
  const size_t most = between(b0, 0xC2, 0xDF) ? 2 : between(b0, 0xE0, 0xEF) ? 3 : between(b0, 0xF0, 0xF4) ? 4 : 1;
  size_t n = 1;
  for (; n < most && n < s.size(); ++n) {
    uint32_t low = 0x80, high = 0xBF;
    if (n == 1) {
      low = b0 == 0xE0 ? 0xA0 : b0 == 0xF0 ? 0x90 : low;
      high = b0 == 0xED ? 0x9F : b0 == 0xF4 ? 0x8F : high;
    }
    if (!between(byte(n), low, high)) break;
  }
  return n;
}

// The characters of which a text may be made that is in the form already, and at which it can be cut: they stay as they
// are, combine with nothing before them and are not reordered. Looked up instead of worked out each time.
class StableCharacters {
 public:
  explicit StableCharacters(NormalForm form) : form_(form), stable_(kMost), alone_(kMost), second_(kMost) {
    for (uint32_t c = 0; c < kMost; ++c) {
      utf8proc_int32_t parts[32];
      int boundary = 0;
      const auto n =
          utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32,
                                  static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
      for (utf8proc_ssize_t k = 1; k < n && k < 32; ++k) {
        if (parts[k] < static_cast<utf8proc_int32_t>(kMost)) second_[static_cast<size_t>(parts[k])] = true;
      }
    }
    const bool composes = form != NormalForm::nfd && form != NormalForm::nfkd;
    for (uint32_t c = 0; c < kMost; ++c) {
      if (between(c, 0xD800, 0xDFFF)) continue;
      alone_[c] = form != NormalForm::nfc_current && (among(kNewerMarks, c) || among(kNewerCompatibility, c));
      const auto* p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      if (p->combining_class != 0 || (composes && second_[c])) continue;
      std::string one;
      utf8_append(one, c);
      stable_[c] = p->decomp_seqindex == UINT16_MAX && !between(c, 0xAC00, 0xD7A3) ? true : map(one, form) == one;
    }
  }
  bool has(uint32_t c) const { return c < kMost && stable_[c]; }
  /// Not known to the reference: stays as it is, and what is beside it too is apart.
  bool alone(uint32_t c) const { return c < kMost && alone_[c]; }
  /// What it becomes begins with a character that joins nothing before it.
  bool starts_group(uint32_t c) const {
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const bool compat = form_ == NormalForm::nfkc || form_ == NormalForm::nfkd;
    const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    if (utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, static_cast<utf8proc_option_t>(options),
                                &boundary) < 1) {
      return false;
    }
    return utf8proc_get_property(parts[0])->combining_class == 0 &&
           !(parts[0] < static_cast<utf8proc_int32_t>(kMost) && second_[static_cast<size_t>(parts[0])]);
  }

  static std::string map(std::string_view text, NormalForm form) {
    int options = UTF8PROC_STABLE;
    options |= form == NormalForm::nfd || form == NormalForm::nfkd ? UTF8PROC_DECOMPOSE : UTF8PROC_COMPOSE;
    if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
    utf8proc_uint8_t* result = nullptr;
    const utf8proc_ssize_t n =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &result, static_cast<utf8proc_option_t>(options));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
    if (n < 0) throw Error(ErrorCode::data, str("Unicode normalisation: ", utf8proc_errmsg(n)));
    return {reinterpret_cast<const char*>(result), static_cast<size_t>(n)};
  }

 private:
  static constexpr uint32_t kMost = 0x20000;
  NormalForm form_;
  std::vector<bool> stable_, alone_;
  std::vector<bool> second_;  // of a composition
};

const StableCharacters& stable_characters(NormalForm form) {
  switch (form) {
    case NormalForm::nfc: {
      static const StableCharacters table(NormalForm::nfc);
      return table;
    }
    case NormalForm::nfd: {
      static const StableCharacters table(NormalForm::nfd);
      return table;
    }
    case NormalForm::nfkc: {
      static const StableCharacters table(NormalForm::nfkc);
      return table;
    }
    case NormalForm::nfkd: {
      static const StableCharacters table(NormalForm::nfkd);
      return table;
    }
    default: {
      static const StableCharacters table(NormalForm::nfc_current);
      return table;
    }
  }
}

// Bytes of the characters that both begin with.
size_t same_front(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < a.size()) {
    const size_t length = utf8_sequence(a.substr(n));
    if (a.substr(n, length) != b.substr(n, length)) break;
    n += length;
  }
  return n;
}

size_t same_back(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < a.size() && n < b.size()) {
    const size_t length = utf8_last(a.substr(0, a.size() - n));
    if (n + length > b.size() || a.substr(a.size() - n - length, length) != b.substr(b.size() - n - length, length)) {
      break;
    }
    n += length;
  }
  return n;
}

// `made` is what became of `text`, which stands at `at`: cut where characters are independent of those before them.
void find_edits(std::string_view text, std::string_view made, size_t at, const StableCharacters& stable,
                NormalForm form, Edits& edits) {
  if (text == made) return;
  struct Group {
    std::string_view text;
    std::string made;
  };
  std::vector<Group> groups;
  size_t done = 0, joined = 0;
  bool same = true;
  const auto close = [&](size_t end) {
    Group g{text.substr(done, end - done), {}};
    g.made = StableCharacters::map(g.text, form);
    same = same && made.substr(joined, g.made.size()) == g.made;
    if (!same) return;
    joined += g.made.size();
    done = end;
    groups.push_back(std::move(g));
  };
  for (size_t i = 0; i < text.size() && same;) {
    uint32_t c = 0;
    const size_t n = utf8_sequence(text.substr(i), &c);
    if (i > done && stable.starts_group(c)) close(i);
    i += n;
  }
  if (same) close(text.size());
  if (!same || joined != made.size()) groups.assign(1, {text, std::string(made)});
  for (const Group& g : groups) {
    const size_t front = same_front(g.text, g.made);
    const size_t back = same_back(g.text.substr(front), std::string_view(g.made).substr(front));
    edits.replace(at + front, at + g.text.size() - back, g.made.size() - front - back);
    at += g.text.size();
  }
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form, Edits* edits) {
  const StableCharacters& stable = stable_characters(form);
  std::string out;
  out.reserve(text.size());
  // [done, safe): as it is; [safe, at): a stable character and what may change it.
  size_t done = 0, safe = 0, at = 0;
  bool unstable = false;
  while (at <= text.size()) {
    uint32_t c = 0;
    const size_t n = at < text.size() ? utf8_sequence(text.substr(at), &c) : 1;
    const bool alone = at < text.size() && stable.alone(c);
    if (at == text.size() || alone || stable.has(c)) {
      if (unstable) {
        out += text.substr(done, safe - done);
        const std::string made = StableCharacters::map(text.substr(safe, at - safe), form);
        if (edits != nullptr) find_edits(text.substr(safe, at - safe), made, safe, stable, form, *edits);
        out += made;
        done = at;
        unstable = false;
      }
      safe = at;
      if (alone) {
        out += text.substr(done, at + n - done);
        done = safe = at + n;
      }
    } else {
      unstable = true;
    }
    at += n;
  }
  return out += text.substr(done);
}

bool is_white_space(uint32_t c) {
  return between(c, 9, 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || between(c, 0x2000, 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Letters in circles and squares are alphabetic symbols; U+200C and U+200D join.
      return is_mark(c) || between(c, 0x24B6, 0x24E9) || between(c, 0x1F130, 0x1F149) || between(c, 0x1F150, 0x1F169) ||
             between(c, 0x1F170, 0x1F189) || c == 0x200C || c == 0x200D;
  }
}

bool is_number(uint32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80)
    return between(c, 0x21, 0x2F) || between(c, 0x3A, 0x40) || between(c, 0x5B, 0x60) || between(c, 0x7B, 0x7E);
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO && !among(kNewerPunctuation, c);
}

bool is_mark(uint32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

bool is_accent(uint32_t c) {
  return is_mark(c) && !among(kNewerMarks, c);
}

void append_lower(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {  // the only character whose lower case is two
    out += "i\xCC\x87";
  } else {
    utf8_append(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

size_t grapheme_length(std::string_view text) {
  uint32_t before = 0, next = 0;
  size_t at = utf8_sequence(text, &before);
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const size_t n = utf8_sequence(text.substr(at), &next);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before), static_cast<utf8proc_int32_t>(next),
                                         &state)) {
      break;
    }
    before = next;
    at += n;
  }
  return at;
}

std::string replace_invalid(std::string_view text, Edits* edits) {
  std::string out;
  const size_t size = text.size();
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\xEF\xBF\xBD";
    const size_t at = size - text.size(), bad = maximal_part(text);
    if (edits != nullptr) edits->replace(at, at + bad, 3);
    text.remove_prefix(bad);
  }
  return out;
}

}  // namespace bantam
