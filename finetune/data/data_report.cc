// SPDX-License-Identifier: Apache-2.0
#include "data_report.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "../../kernels/error.h"
#include "grouped.h"

namespace bantam {
namespace {

using Json = nlohmann::ordered_json;

// One list for writing and reading; the order is that of the file.
template <class Report, class F>
void each_number(Report& r, const F& f) {
  f("rows_read", r.rows_read), f("rows_kept", r.rows_kept), f("rows_cut", r.rows_cut), f("rows_split", r.rows_split);
  f("rows_dropped", r.rows_dropped), f("rows_without_target", r.rows_without_target);
  f("rows_malformed", r.rows_malformed), f("rows_too_long", r.rows_too_long);
  f("samples", r.samples), f("tokens", r.tokens), f("supervised_tokens", r.supervised_tokens);
  f("tokens_lost", r.tokens_lost), f("supervised_tokens_lost", r.supervised_tokens_lost);
  f("longest_row", r.longest_row), f("longest_kept", r.longest_kept), f("max_seq_length", r.max_seq_length);
  f("bytes_without_token", r.bytes_without_token), f("carriage_returns", r.carriage_returns);
  f("control_texts", r.control_texts), f("joined_prompts", r.joined_prompts);
  f("affected_not_listed", r.affected_not_listed);
}
template <class Source, class F>
void each_number_of_source(Source& s, const F& f) {
  f("files", s.files), f("rows_read", s.rows_read), f("rows_kept", s.rows_kept), f("tokens", s.tokens);
  f("supervised_tokens", s.supervised_tokens);
}

constexpr std::array kTypes = {"auto", "prompt_completion", "text", "chat", "alpaca"};
constexpr std::array kPercentiles = {50, 90, 95, 99};

std::string percent(double share) {
  return str(std::round(share * 1000) / 10, " %");
}

double ratio(int64_t a, int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0;
}

}  // namespace

const char* name_of(DatasetType type) {
  return kTypes.at(static_cast<size_t>(type));
}

std::string DataReport::to_json() const {
  Json j;
  each_number(*this, [&](const char* name, int64_t n) { j[name] = n; });
  j["newlines_normalized"] = newlines_normalized;
  Json& p = j["length_percentiles"];
  for (const int n : kPercentiles) p[std::to_string(n)] = lengths.percentile(n / 100.0);
  Json& buckets = j["length_histogram"] = Json::array();
  for (const auto& b : lengths.buckets()) buckets.push_back({{"from", b.from}, {"to", b.to}, {"rows", b.rows}});
  Json& counts = j["length_counts"] = Json::array();
  for (const auto& [length, rows] : lengths.counts()) counts.push_back({length, rows});
  Json& list = j["sources"] = Json::array();
  for (const SourceReport& s : sources) {
    Json one = {{"path", s.path}, {"format", s.format}, {"type", name_of(s.type)}, {"type_detected", s.detected}};
    one["weight"] = s.weight;
    each_number_of_source(s, [&](const char* name, int64_t n) { one[name] = n; });
    list.push_back(one);
  }
  Json& rows = j["affected"] = Json::array();
  for (const RowRef& r : affected) {
    rows.push_back({{"file", r.file}, {"line", r.line}, {"tokens", r.tokens}, {"what", r.what}});
  }
  // A path need not be UTF-8; everything else is.
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

DataReport DataReport::from_json(const std::string& json) try {
  const Json j = Json::parse(json);
  DataReport r;
  each_number(r, [&](const char* name, int64_t& n) { n = j.at(name).get<int64_t>(); });
  r.newlines_normalized = j.at("newlines_normalized").get<bool>();
  for (const Json& c : j.at("length_counts")) r.lengths.add(c.at(0).get<int64_t>(), c.at(1).get<int64_t>());
  for (const Json& one : j.at("sources")) {
    SourceReport s;
    s.path = one.at("path").get<std::string>(), s.format = one.at("format").get<std::string>();
    const std::string type = one.at("type").get<std::string>();
    for (size_t i = 0; i < kTypes.size(); ++i)
      if (type == kTypes[i]) s.type = static_cast<DatasetType>(i);
    s.detected = one.at("type_detected").get<bool>(), s.weight = one.at("weight").get<double>();
    each_number_of_source(s, [&](const char* name, int64_t& n) { n = one.at(name).get<int64_t>(); });
    r.sources.push_back(std::move(s));
  }
  for (const Json& one : j.at("affected")) {
    r.affected.push_back({one.at("file").get<std::string>(), one.at("line").get<int64_t>(),
                          one.at("tokens").get<int64_t>(), one.at("what").get<std::string>()});
  }
  return r;
} catch (const Json::exception& e) {
  throw Error(ErrorCode::data, str("not a data report: ", e.what()));
}

std::string DataReport::summary() const {
  constexpr size_t kShown = 3;
  std::string out;
  for (const SourceReport& s : sources) {
    out += str(s.path, ": ", s.detected ? "looks like " : "", name_of(s.type), ", ", s.format);
    if (s.files > 1) out += str(", ", grouped(s.files), " files");
    if (sources.size() > 1) out += str(", ", grouped(s.rows_kept), " rows, ", grouped(s.tokens), " tokens");
    if (s.weight != 1) out += str(", weight ", s.weight);
    out += "\n";
  }
  out += str(grouped(rows_read), " rows read, ", grouped(rows_kept), " kept");
  if (rows_cut > 0) out += str(", ", grouped(rows_cut), " of them cut");
  if (rows_split > 0) out += str(", ", grouped(rows_split), " of them split, ", grouped(samples), " samples in all");
  out += str(", ", grouped(rows_dropped), " dropped");
  std::string why;
  if (rows_malformed > 0) why += str(grouped(rows_malformed), " malformed");
  if (rows_without_target > 0)
    why += str(why.empty() ? "" : ", ", grouped(rows_without_target), " without a trained token");
  if (!why.empty()) out += " (" + why + ")";
  out += str("\n", grouped(tokens), " tokens, ", grouped(supervised_tokens), " trained (",
             percent(ratio(supervised_tokens, tokens)), "), ", grouped(tokens_lost), " lost; longest row ",
             grouped(longest_row), ", longest kept ", grouped(longest_kept), " tokens\n");
  if (lengths.rows() > 0) {
    out += "length of rows:";
    for (const int n : kPercentiles)
      out += str(n == kPercentiles[0] ? " " : ", ", n, " % up to ", grouped(lengths.percentile(n / 100.0)));
    out += " tokens\n" + lengths.histogram();
  }
  for (size_t i = 0; i < affected.size() && i < kShown; ++i) {
    out += str("  ", affected[i].file, ":", affected[i].line, " ", affected[i].what, "\n");
  }
  if (const int64_t more = static_cast<int64_t>(affected.size()) + affected_not_listed - static_cast<int64_t>(kShown);
      more > 0) {
    out += str("  and ", grouped(more), " more, each with its line in the report\n");
  }
  if (carriage_returns > 0) {
    out += str(
        grouped(carriage_returns), " carriage returns inside of texts, ",
        newlines_normalized ? "turned into line feeds.\n" : "kept; normalize_newlines turns them into line feeds.\n");
  }
  if (control_texts > 0) {
    out += str(grouped(control_texts), " texts of control tokens stand inside of messages; they are plain text.\n");
  }
  if (joined_prompts > 0) {
    out += str(grouped(joined_prompts),
               " answers share a token with the end of their prompt; served, the prompt ends with other tokens.\n");
  }
  if (bytes_without_token > 0) {
    out += str(grouped(bytes_without_token), " bytes have no token in this vocabulary and are left out.\n");
  }
  if (rows_too_long > 0) {
    out += str(grouped(rows_too_long), " rows are over max_seq_length ", grouped(max_seq_length));
    if (supervised_tokens_lost > 0) out += str(", and ", grouped(supervised_tokens_lost), " trained tokens are lost");
    out +=
        str(". Before shortening examples, turn gradient_checkpointing on (or leave it to auto) and raise "
            "max_seq_length; ",
            grouped(longest_row), " keeps every row whole.\n");
  }
  return out;
}

}  // namespace bantam
