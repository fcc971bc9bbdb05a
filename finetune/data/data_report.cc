// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "../../kernels/error.h"
#include "dataset.h"
#include "grouped.h"

namespace bantam {

std::string DataReport::to_json() const {
  nlohmann::ordered_json j;
  j["rows_read"] = rows_read;
  j["rows_kept"] = rows_kept;
  j["rows_cut"] = rows_cut;
  j["rows_split"] = rows_split;
  j["rows_dropped"] = rows_dropped;
  j["rows_without_target"] = rows_without_target;
  j["rows_too_long"] = rows_too_long;
  j["samples"] = samples;
  j["tokens"] = tokens;
  j["supervised_tokens"] = supervised_tokens;
  j["tokens_lost"] = tokens_lost;
  j["longest_row"] = longest_row;
  j["longest_kept"] = longest_kept;
  j["max_seq_length"] = max_seq_length;
  j["bytes_without_token"] = bytes_without_token;
  auto& list = j["affected"] = nlohmann::ordered_json::array();
  for (const RowRef& r : affected) {
    list.push_back({{"file", r.file}, {"line", r.line}, {"tokens", r.tokens}, {"what", r.what}});
  }
  // A path need not be UTF-8; everything else is.
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string DataReport::summary() const {
  constexpr size_t kShown = 3;
  const double share = tokens > 0 ? 100.0 * static_cast<double>(supervised_tokens) / static_cast<double>(tokens) : 0.0;
  std::string out = str(grouped(rows_read), " rows read, ", grouped(rows_kept), " kept");
  if (rows_cut > 0) out += str(", ", grouped(rows_cut), " of them cut");
  if (rows_split > 0) out += str(", ", grouped(rows_split), " of them split, ", grouped(samples), " samples in all");
  out += str(", ", grouped(rows_dropped), " dropped");
  if (rows_without_target > 0) out += str(" (", grouped(rows_without_target), " without a trained token)");
  out += str("\n", grouped(tokens), " tokens, ", grouped(supervised_tokens), " trained (", std::round(share * 10) / 10,
             " %), ", grouped(tokens_lost), " lost; longest row ", grouped(longest_row), ", longest kept ",
             grouped(longest_kept), " tokens\n");
  for (size_t i = 0; i < affected.size() && i < kShown; ++i) {
    out += str("  ", affected[i].file, ":", affected[i].line, " ", affected[i].what, "\n");
  }
  if (affected.size() > kShown) {
    out += str("  and ", grouped(static_cast<int64_t>(affected.size() - kShown)),
               " more, each with its line in the report\n");
  }
  if (bytes_without_token > 0) {
    out += str(grouped(bytes_without_token), " bytes have no token in this vocabulary and are left out.\n");
  }
  if (rows_too_long > 0) {
    out += str(
        grouped(rows_too_long), " rows are over max_seq_length ", grouped(max_seq_length),
        ". Before shortening examples, turn gradient_checkpointing on (or leave it to auto) and raise max_seq_length; ",
        grouped(longest_row), " keeps every row whole.\n");
  }
  return out;
}

}  // namespace bantam
