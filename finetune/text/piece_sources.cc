// SPDX-License-Identifier: Apache-2.0
#include "piece_sources.h"

#include <algorithm>
#include <functional>

namespace bantam {

PieceSources::PieceSources(std::string_view text, const Alignment& alignment, const Pieces& pieces) {
  sources_.reserve(pieces.store.size() + 1);
  sources_.push_back({text, &alignment});
  if (pieces.store.empty()) return;
  const auto by_address = [](const Source& a, const Source& b) { return std::less<>()(a.text.data(), b.text.data()); };
  for (const Pieces::Made& m : pieces.store) sources_.push_back({m.text, nullptr});
  std::sort(sources_.begin(), sources_.end(), by_address);
  // A text is made of those before it.
  for (const Pieces::Made& m : pieces.store) {
    const Place from = find(m.source);
    made_.emplace_back(from.alignment, from.at).add(m.edits);
    std::lower_bound(sources_.begin(), sources_.end(), Source{m.text, nullptr}, by_address)->alignment = &made_.back();
  }
}

PieceSources::Place PieceSources::find(std::string_view piece) const {
  auto it = sources_.begin();
  if (sources_.size() > 1) {
    it = std::upper_bound(sources_.begin(), sources_.end(), piece.data(),
                          [](const char* at, const Source& s) { return std::less<>()(at, s.text.data()); });
    --it;
  }
  return {it->alignment, static_cast<size_t>(piece.data() - it->text.data())};
}

}  // namespace bantam
