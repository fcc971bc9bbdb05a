// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library, and a small string builder. The library never prints, aborts or exits.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace bantam {

/// What went wrong; the value is also the exit code of the program (design: 75, 130 and 143 are not errors).
enum class ErrorCode : int {
  internal = 1,      ///< a broken promise of ours
  usage = 2,         ///< recipe, flags, arguments
  data = 3,          ///< a dataset file or its content
  model = 4,         ///< model, tokenizer or adapter files
  does_not_fit = 5,  ///< memory
  device = 6,        ///< backend, driver, library
  numeric = 7,       ///< non-finite numbers
  io = 8,            ///< disk full, permission, lock
};

/// `message`: where (file:line, key path, tensor), what was found, what was expected. `hint`: what to do; may be empty.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}
  ErrorCode code() const noexcept { return code_; }
  const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorCode code_;
  std::string hint_;
};

/// Concatenates its arguments as text (g++ 12 has no <format>).
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

}  // namespace bantam
