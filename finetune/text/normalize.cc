// SPDX-License-Identifier: Apache-2.0
#include "normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "../../kernels/error.h"
#include "utf8.h"

namespace bantam {

std::string to_nfc(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix(text);
    if (valid > 0) {
      utf8proc_uint8_t* result = nullptr;
      const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
      const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(valid), &result, options);
      const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
      if (n < 0) throw Error(ErrorCode::data, str("NFC: ", utf8proc_errmsg(n)));
      out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(n));
      text.remove_prefix(valid);
    }
    while (!text.empty() && utf8_sequence(text) == 0) {
      out.push_back(text[0]);
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace bantam
