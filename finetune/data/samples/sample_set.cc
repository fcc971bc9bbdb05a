// SPDX-License-Identifier: Apache-2.0
#include "sample_set.h"

#include <algorithm>
#include <numeric>

#include "../../../kernels/error.h"
#include "sample_storage.h"
#include "xxh3.h"

namespace bantam {
namespace {

int64_t count_targets(std::span<const uint8_t> trained) {
  return std::count_if(trained.begin(), trained.end(), [](uint8_t t) { return t != 0; });
}

}  // namespace

int64_t Sample::targets() const {
  return count_targets(trained);
}

int64_t SampleView::targets() const {
  return count_targets(trained);
}

bool SampleView::operator==(const SampleView& other) const {
  return id == other.id && std::ranges::equal(ids, other.ids) && std::ranges::equal(trained, other.trained) &&
         std::ranges::equal(weights, other.weights);
}

SampleView SampleSet::Storage::view(size_t i) const {
  const uint64_t at = offsets[i];
  const std::byte* p = segments[at >> kSegmentBits] + (at & (kSegmentBytes - 1));
  const size_t n = lengths[i] & kMostTokens;
  SampleView v;
  v.id = ids[i];
  v.ids = {reinterpret_cast<const int32_t*>(p), n};
  p += n * sizeof(int32_t);
  if (lengths[i] & kHasWeights) {
    v.weights = {reinterpret_cast<const float*>(p), n};
    p += n * sizeof(float);
  }
  v.trained = {reinterpret_cast<const uint8_t*>(p), n};
  return v;
}

SampleSet::SampleSet(std::vector<Sample> samples) {
  SampleWriter writer;
  for (Sample& s : samples) {
    writer.add(s);
    s = Sample();  // its memory is free again
  }
  *this = writer.finish();
}

size_t SampleSet::stored() const {
  return storage_ ? storage_->ids.size() : 0;
}

SampleView SampleSet::operator[](size_t i) const {
  return storage_->view(all_ ? i : which_[i]);
}

int64_t SampleSet::length(size_t i) const {
  return storage_->lengths[all_ ? i : which_[i]] & kMostTokens;
}

uint64_t SampleSet::id(size_t i) const {
  return storage_->ids[all_ ? i : which_[i]];
}

int64_t SampleSet::tokens() const {
  if (!storage_) return 0;
  if (all_) return storage_->tokens;
  int64_t sum = 0;
  for (size_t i = 0; i < size(); ++i) sum += length(i);
  return sum;
}

SampleSet SampleSet::subset(std::vector<uint32_t> which) const {
  for (uint32_t& w : which) {
    if (w >= size()) throw Error(ErrorCode::internal, str("subset: sample ", w, " of ", size()));
    if (!all_) w = which_[w];
  }
  SampleSet out(storage_);
  out.which_ = std::move(which);
  out.all_ = false;
  return out;
}

uint64_t SampleSet::hash() const {
  const uint64_t whole = storage_ ? storage_->hash : content_hash(Xxh3().digest(), {}, {});
  if (all_) return whole;
  return Xxh3().add(&whole, sizeof whole).add(which_.data(), which_.size() * sizeof which_[0]).digest();
}

int32_t SampleSet::smallest_token() const {
  return storage_ ? storage_->smallest : 0;
}

int32_t SampleSet::largest_token() const {
  return storage_ ? storage_->largest : -1;
}

std::string_view SampleSet::metadata() const {
  return storage_ ? storage_->metadata : std::string_view();
}

}  // namespace bantam
