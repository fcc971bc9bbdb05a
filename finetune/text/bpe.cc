// SPDX-License-Identifier: Apache-2.0
#include "bpe.h"

#include <algorithm>

#include "../../kernels/error.h"
#include "byte_level.h"
#include "utf8.h"

namespace bantam {
namespace {

constexpr std::string_view kSpaceSign = "\xE2\x96\x81";  // U+2581

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::model, str(where, ": ", what));
}

}  // namespace

BpeModel::BpeModel(BpeParts parts)
    : where_(std::move(parts.where)),
      vocabulary_(std::move(parts.tokens), where_),
      merges_(parts.table ? *std::move(parts.table) : BpeMerges(parts.merges.size())),
      bytes_(parts.bytes),
      ignore_merges_(parts.ignore_merges),
      fuse_unk_(parts.fuse_unk),
      unk_(parts.unk),
      word_prefix_(std::move(parts.word_prefix)),
      word_suffix_(std::move(parts.word_suffix)),
      whole_(new std::atomic<uint8_t>[vocabulary_.size()]()) {
  byte_ids_.fill(-1);
  for (const int32_t id : parts.controls) {
    // A control token of one character is also how that character is written.
    if (id < 0 || static_cast<size_t>(id) >= vocabulary_.size()) continue;
    const std::string& text = vocabulary_.text(id);
    if (!text.empty() && utf8_sequence(text) < text.size()) whole_[static_cast<size_t>(id)] = never;
  }
  if (bytes_) {
    read_bytes();
  } else if (parts.byte_fallback) {
    read_byte_fallback();
  }
  read_merges(parts.merges);
  if (!bytes_ && word_prefix_.empty() && word_suffix_.empty()) find_word_starts(parts.merges);
  complete_ = std::none_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id < 0; });
}

void BpeModel::read_bytes() {
  words_.reserve(vocabulary_.size(), 8 * vocabulary_.size());
  for (size_t i = 0; i < vocabulary_.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (vocabulary_.text(id).empty()) continue;
    const auto bytes = alphabet_to_bytes(vocabulary_.text(id));
    if (!bytes) continue;  // never the text of a piece
    words_.add(*bytes, id);
    if (bytes->size() == 1) byte_ids_[static_cast<uint8_t>((*bytes)[0])] = id;
  }
  if (std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id < 0; })) {
    fail(where_, "no token of the vocabulary is a byte: this is not a byte-level vocabulary");
  }
}

void BpeModel::read_byte_fallback() {
  for (size_t b = 0; b < 256; ++b) byte_ids_[b] = vocabulary_.find(byte_token(static_cast<uint8_t>(b)));
}

void BpeModel::read_merges(const std::vector<std::pair<std::string, std::string>>& merges) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string &left = merges[rank].first, &right = merges[rank].second;
    const auto id = [&](const std::string& text) {
      const int32_t found = vocabulary_.find(text);
      if (found < 0) {
        fail(where_, str("merge ", rank, " ('", printable(left), "', '", printable(right), "') needs token '",
                         printable(text), "', which the vocabulary lacks"));
      }
      return found;
    };
    if (right.size() < word_prefix_.size()) {
      fail(where_, str("merge ", rank, ": '", printable(right), "' is shorter than continuing_subword_prefix"));
    }
    const int32_t result = id(left + right.substr(word_prefix_.size()));
    if (!is_control(result)) merges_.add(id(left), id(right), {static_cast<int32_t>(rank), result});
  }
}

// Merges only join texts, so when no result has the sign for a space behind another character, text can be cut there,
// and whole documents become words. Not where bytes or unknown characters stand for other text than they show.
void BpeModel::find_word_starts(const std::vector<std::pair<std::string, std::string>>& merges) {
  const auto shows_other = [&](const std::string& text) {
    const int32_t id = vocabulary_.find(text);
    return id == unk_ || std::find(byte_ids_.begin(), byte_ids_.end(), id) != byte_ids_.end();
  };
  space_starts_word_ = vocabulary_.find(kSpaceSign) >= 0 && vocabulary_.find(kSpaceSign) != unk_;
  for (size_t i = 0; i < merges.size() && space_starts_word_; ++i) {
    const auto& [left, right] = merges[i];
    const std::string both = left + right;
    size_t at = 0;
    while (std::string_view(both).substr(at).starts_with(kSpaceSign)) at += kSpaceSign.size();
    space_starts_word_ = both.find(kSpaceSign, at) == std::string::npos;
    if (left.starts_with("<") || right.starts_with("<") ||
        (unk_ >= 0 && (left == vocabulary_.text(unk_) || right == vocabulary_.text(unk_)))) {
      space_starts_word_ = space_starts_word_ && !shows_other(left) && !shows_other(right);
    }
  }
}

size_t BpeModel::encode(std::string_view piece, std::vector<int32_t>& out, std::vector<TextSpan>* spans) const {
  return spans == nullptr ? encode_piece<false>(piece, out, nullptr) : encode_piece<true>(piece, out, spans);
}

template <bool with_spans>
size_t BpeModel::encode_piece(std::string_view piece, std::vector<int32_t>& out, std::vector<TextSpan>* spans) const {
  if (!space_starts_word_ || (ignore_merges_ && piece.size() <= vocabulary_.longest())) {
    return encode_word<with_spans>(piece, 0, out, spans);
  }
  size_t lost = 0;
  for (size_t at = 0; at < piece.size();) {
    const std::string_view rest = piece.substr(at);
    size_t end = 0;
    while (rest.substr(end).starts_with(kSpaceSign)) end += kSpaceSign.size();
    end = std::min(rest.find(kSpaceSign, end), rest.size());
    lost += encode_word<with_spans>(rest.substr(0, end), at, out, spans);
    at += end;
  }
  return lost;
}

template <bool with_spans>
size_t BpeModel::encode_word(std::string_view word, size_t at, std::vector<int32_t>& out,
                             std::vector<TextSpan>* spans) const {
  const int32_t id = bytes_ ? words_.find(word) : vocabulary_.find(word);
  const uint8_t whole = id < 0 ? uint8_t{never} : whole_[static_cast<size_t>(id)].load(std::memory_order_relaxed);
  if (whole == yes || (ignore_merges_ && whole != never)) {
    out.push_back(id);
    if constexpr (with_spans) spans->push_back({at, at + word.size()});
    return 0;
  }
  const size_t start = out.size();
  size_t lost = 0;
  if constexpr (with_spans) {
    const size_t spans_start = spans->size();
    lost = bytes_ ? append_bytes(word, at, out, spans) : append_characters(word, at, out, spans);
    const size_t left = merges_.apply(out.data() + start, out.size() - start, spans->data() + spans_start);
    out.resize(start + left);
    spans->resize(spans_start + left);
  } else {
    lost = bytes_ ? append_bytes(word, at, out, nullptr) : append_characters(word, at, out, nullptr);
    out.resize(start + merges_.apply(out.data() + start, out.size() - start));
  }
  if (whole == unknown && lost == 0) {
    const uint8_t now = out.size() == start + 1 && out[start] == id ? yes : no;
    whole_[static_cast<size_t>(id)].store(now, std::memory_order_relaxed);
  }
  return lost;
}

size_t BpeModel::append_bytes(std::string_view word, size_t at, std::vector<int32_t>& out,
                              std::vector<TextSpan>* spans) const {
  size_t lost = 0;
  bool after_unk = false;
  for (const char c : word) {
    const TextSpan here{at, at + 1};
    ++at;
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      out.push_back(id);
      if (spans != nullptr) spans->push_back(here);
    } else {
      ++lost;
      if (unk_ >= 0 && (!after_unk || !fuse_unk_)) {
        out.push_back(unk_);
        if (spans != nullptr) spans->push_back(here);
      } else if (unk_ >= 0 && spans != nullptr) {
        spans->back().end = here.end;
      }
    }
    after_unk = id < 0;
  }
  return lost;
}

bool BpeModel::append_fallback(std::string_view text, std::vector<int32_t>& out) const {
  if (std::any_of(text.begin(), text.end(), [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] < 0; }))
    return false;
  for (const char c : text) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  return true;
}

// An unknown character waits for the next known one before its token is written, so that neighbours can be fused; bytes
// that are written meanwhile come first. So it is in HF tokenizers. Ids that are out of order stand for all that
// waited.
size_t BpeModel::append_characters(std::string_view word, size_t at, std::vector<int32_t>& out,
                                   std::vector<TextSpan>* spans) const {
  size_t lost = 0, waiting_from = 0;
  bool waiting = false;
  std::string changed;
  const auto write_unk = [&](size_t end) {
    out.push_back(unk_);
    if (spans != nullptr) spans->push_back({waiting_from, end});
  };
  for (size_t i = 0; i < word.size();) {
    const size_t n = utf8_sequence(word.substr(i)), here = at + i;
    std::string_view text = word.substr(i, n);
    const bool prefixed = i > 0 && !word_prefix_.empty(), suffixed = i + n == word.size() && !word_suffix_.empty();
    if (prefixed || suffixed) {
      changed = str(prefixed ? word_prefix_ : "", text, suffixed ? word_suffix_ : "");
      text = changed;
    }
    i += n;
    if (const int32_t id = vocabulary_.find(text); id >= 0) {
      if (waiting) write_unk(here);
      waiting = false;
      out.push_back(id);
      if (spans != nullptr) spans->push_back({here, here + n});
    } else if (append_fallback(text, out)) {
      // Byte for byte, but for what an affix adds.
      for (size_t k = 0; spans != nullptr && k < text.size(); ++k) {
        const TextSpan byte = text.size() == n ? TextSpan{here + k, here + k + 1} : TextSpan{here, here + n};
        spans->push_back(waiting ? TextSpan{waiting_from, here + n} : byte);
      }
    } else {
      lost += n;
      if (waiting && !fuse_unk_) write_unk(here);
      if (!waiting || !fuse_unk_) waiting_from = here;
      waiting = unk_ >= 0;
    }
  }
  if (waiting) write_unk(at + word.size());
  return lost;
}

std::pair<std::string, std::string> split_merge(std::string_view merge, size_t index, const std::string& where) {
  const size_t space = merge.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != std::string_view::npos) {
    fail(where, str("merge ", index, " is '", printable(merge), "', expected two tokens and a space"));
  }
  return {std::string(merge.substr(0, space)), std::string(merge.substr(space + 1))};
}

}  // namespace bantam
