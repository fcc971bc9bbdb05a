// SPDX-License-Identifier: Apache-2.0
#include "data_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "../finetune/data/grouped.h"
#include "../kernels/error.h"
#include "row_view.h"
#include "values.h"

namespace bantam {
namespace {

using Json = nlohmann::ordered_json;

std::string percent(double share) {
  return str(std::round(share * 1000) / 10, " %");
}

Json packing_json(const PackingStats& p) {
  return {{"packs", p.packs},
          {"fill", p.fill},
          {"padding_without_packing", p.padding_without_packing},
          {"padding_of_slots", p.padding_of_slots},
          {"padding_saved", p.saved}};
}

std::string packing_text(const PackingStats& p, const BatchOptions& o) {
  if (!o.sample_packing) {
    return str("no packing; sample_packing would make ", grouped(p.packs), " micro-batches, ", percent(p.fill),
               " full, of the rows\n");
  }
  return str("packing: ", grouped(p.packs), " packs of up to ", grouped(o.micro_batch_size * o.max_seq_length),
             " tokens, ", percent(p.fill), " full; a row in each slot of ", grouped(o.max_seq_length), " would be ",
             percent(p.padding_of_slots), " padding, of which packing saves ", percent(p.saved), "\n");
}

}  // namespace

PackingStats packing_of(const Session& s) {
  return packing_stats(s.train.samples, s.options.batches, s.train.source_weights);
}

std::string data_text(const Session& s, const PackingStats& packing) {
  std::string out = s.train.report.summary() + packing_text(packing, s.options.batches);
  if (s.train.from_cache) out += "prepared earlier, taken from the cache\n";
  if (!s.eval.samples.empty()) {
    const DataReport& r = s.eval.report;
    out += r.sources.empty() ? str("held out: ", grouped(r.rows_kept), " rows, ", grouped(r.tokens), " tokens\n")
                             : "held-out data\n" + r.summary();
  }
  return out;
}

std::string data_json(const Session& s, const PackingStats& packing) {
  Json j = {{"train", Json::parse(s.train.report.to_json())}};
  j["train"]["packing"] = packing_json(packing);
  if (s.chat_template && !date_of(*s.chat_template).empty()) j["today"] = date_of(*s.chat_template);
  if (!s.eval.samples.empty()) j["eval"] = Json::parse(s.eval.report.to_json());
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string debug_rows(const Session& s, const CommandOptions& options) {
  std::string out;
  const auto n = std::min(static_cast<size_t>(std::max<int64_t>(options.debug_rows, 0)), s.train.samples.size());
  for (size_t i = 0; i < n; ++i) {
    const SampleView v = s.train.samples[i];
    out += str("row ", i + 1, ": ", grouped(static_cast<int64_t>(v.ids.size())), " tokens, ", grouped(v.targets()),
               " trained\n") +
           row_text(v, *s.tokenizer, options.color);
  }
  return out;
}

}  // namespace bantam
