// SPDX-License-Identifier: Apache-2.0
#include "row_input.h"

#include <algorithm>
#include <cstring>

namespace bantam {

RowInput::RowInput(std::unique_ptr<ByteSource> source, std::string file, size_t most)
    : source_(std::move(source)), file_(std::move(file)), buffer_(kBuffer, '\0'), most_(std::max<size_t>(most, 1)) {
  if (peek(3) == "\xEF\xBB\xBF") at_ += 3;
}

std::string RowInput::where() const {
  return str(file_, ":", line_, ":", column_);
}

void RowInput::fill() {
  try {
    const size_t got = source_->read(buffer_.data() + end_, buffer_.size() - end_);
    end_ += got;
    ended_ = got == 0;
  } catch (const Error& e) {
    failure_ = e;
    ended_ = true;
  }
}

std::string_view RowInput::peek(size_t n) {
  n = std::min(n, kBuffer);
  if (end_ - at_ < n && at_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
    end_ -= at_;
    at_ = 0;
  }
  while (end_ - at_ < n && !ended_) fill();
  return std::string_view(buffer_).substr(at_, std::min(n, end_ - at_));
}

std::string_view RowInput::window() {
  if (at_ == end_ && !ended_) {
    at_ = end_ = 0;
    fill();
  }
  if (at_ == end_ && failure_) throw Error(failure_->code(), str(where(), ": ", failure_->what()), failure_->hint());
  return std::string_view(buffer_).substr(at_, std::min(most_, end_ - at_));
}

void RowInput::take(size_t n) {
  const std::string_view taken = std::string_view(buffer_).substr(at_, n);
  const size_t last = taken.rfind('\n');
  if (last == std::string_view::npos) return take_within_line(n);
  line_ += std::count(taken.begin(), taken.end(), '\n');
  column_ = static_cast<int64_t>(n - last);
  at_ += n;
}

RowInput::Line RowInput::append_line(std::string& text, size_t limit) {
  for (bool any = false;; any = true) {
    const std::string_view w = window();
    if (w.empty()) return any ? Line::whole : Line::end;
    const void* end = std::memchr(w.data(), '\n', w.size());
    const size_t n = end != nullptr ? static_cast<size_t>(static_cast<const char*>(end) - w.data()) : w.size();
    if (n > limit - std::min(limit, text.size())) return Line::too_long;
    text.append(w.data(), n);
    take_within_line(n);
    if (end == nullptr) continue;
    ++at_;
    ++line_;
    column_ = 1;
    return Line::whole;
  }
}

}  // namespace bantam
