// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <algorithm>

#include "error.h"

namespace bantam {

Arena::Arena(const Backend& backend, std::vector<Region> regions) : backend_(backend), regions_(std::move(regions)) {
  for (auto& r : regions_) {
    r.offset = bytes_;
    bytes_ += (r.bytes + 63) / 64 * 64;
  }
  base_ = static_cast<char*>(backend_.allocate(std::max<size_t>(bytes_, 64)));
  if (!base_) {
    std::string lines;
    for (const auto& r : regions_) lines += str(lines.empty() ? "" : ", ", r.name, " ", r.bytes);
    throw Error(ErrorCode::does_not_fit, str("cannot reserve ", bytes_, " bytes (", lines, ")"),
                "turn gradient checkpointing on; then a smaller loss_chunk_bytes, then a smaller micro_batch_size");
  }
  backend_.fill(base_, 0, bytes_);  // touched before step 1
}

Arena::~Arena() {
  backend_.release(base_);
}

void* Arena::region(const std::string& name) const {
  for (const auto& r : regions_)
    if (r.name == name) return base_ + r.offset;
  throw Error(ErrorCode::internal, str("arena has no region '", name, "'"));
}

}  // namespace bantam
