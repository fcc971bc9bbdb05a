// SPDX-License-Identifier: Apache-2.0
#include "regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "../../kernels/error.h"
#include "regex_dialect.h"
#include "utf8.h"

namespace bantam {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackStart = 64 << 10, kJitStackMost = 8 << 20;
constexpr size_t kMostPatternBytes = 64 << 10;

// What a thread needs to match; made once per thread, for all rules.
struct Matcher {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr);

  Matcher() {
    if (data == nullptr || context == nullptr) return;
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Matcher() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
};

std::string pcre2_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

Regex::Regex(const std::string& pattern, const std::string& where) : pattern_(pattern), where_(where) {
  if (pattern.size() > kMostPatternBytes) {
    throw Error(ErrorCode::model,
                str(where, ": an expression of ", pattern.size(), " bytes, at most ", kMostPatternBytes));
  }
  const std::string translated = to_pcre2(pattern, where);
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> settings(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (settings == nullptr) throw Error(ErrorCode::does_not_fit, "no memory to compile an expression");
  pcre2_set_newline(settings.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, settings.get());
  if (code == nullptr) {
    throw Error(ErrorCode::model,
                str(where, ": expression '", printable(pattern), "': ", pcre2_text(error), " at byte ", at));
  }
  code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p))); });
  // Without JIT on this processor the interpreter gives the same matches.
  jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
}

Regex Regex::literal(const std::string& text, const std::string& where) {
  std::string pattern;
  for (const char c : text) {
    const auto b = static_cast<uint8_t>(c);
    const bool special = b < 0x80 && std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos;
    if (special) pattern.push_back('\\');
    pattern.push_back(c);
  }
  if (pattern.empty()) throw Error(ErrorCode::model, str(where, ": an empty pattern"));
  return Regex(pattern, where);
}

// Calls found(begin, end) for each match. As the tokenizers' own engine walks: an empty match right behind the last
// match does not count, and the search goes on one character further.
template <class Found>
void Regex::scan(std::string_view text, Found&& found) const {
  thread_local Matcher matcher;
  if (matcher.data == nullptr || matcher.context == nullptr) {
    throw Error(ErrorCode::does_not_fit, "no memory for the matcher of an expression");
  }
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t from = 0, last = std::string_view::npos;
  while (from <= text.size()) {
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (jit_) rc = pcre2_jit_match(code, subject, text.size(), from, 0, matcher.data, matcher.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, matcher.data,
                       matcher.context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      throw Error(ErrorCode::data, str(where_, ": expression '", printable(pattern_), "' gives up at byte ", from,
                                       " of ", text.size(), ": ", pcre2_text(rc)));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(matcher.data);
    const size_t begin = ends[0], end = ends[1];
    if (end <= begin && begin == last) {
      from = from < text.size() ? from + utf8_sequence(text.substr(from)) : from + 1;
      continue;
    }
    found(begin, end);
    last = from = end;
  }
}

void Regex::find(std::string_view text, std::vector<Span>& out) const {
  if (text.empty()) return;
  size_t done = 0;
  scan(text, [&](size_t begin, size_t end) {
    if (begin > done) out.push_back({done, begin, false});
    out.push_back({begin, end, true});
    done = end;
  });
  if (done < text.size()) out.push_back({done, text.size(), false});
}

void Regex::isolate(std::string_view text, std::vector<std::string_view>& out) const {
  size_t done = 0;
  scan(text, [&](size_t begin, size_t end) {
    if (begin > done) out.push_back(text.substr(done, begin - done));
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    done = end;
  });
  if (done < text.size()) out.push_back(text.substr(done));
}

std::string Regex::replace(std::string_view text, std::string_view content, Edits* edits) const {
  if (text.empty()) return {};
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t done = 0;
  scan(text, [&](size_t begin, size_t end) {
    out += text.substr(done, begin - done);
    out += content;
    done = end;
    if (edits == nullptr) return;
    if (end > begin) {
      edits->replace(begin, end, content.size());
    } else if (begin < text.size()) {
      edits->insert(begin, content.size(), {begin, begin + utf8_sequence(text.substr(begin))});
    } else {
      edits->insert_back(text, content.size());
    }
  });
  out += text.substr(done);
  return out;
}

}  // namespace bantam
