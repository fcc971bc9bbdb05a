// SPDX-License-Identifier: Apache-2.0
// The inside of a WeightStore, shared by those who build one. Not a public header.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mapped_file.h"
#include "weight_store.h"

namespace bantam {

struct WeightStore::Entry {
  WeightView matrix;              ///< rank >= 2
  std::span<const float> vector;  ///< rank < 2
  bool is_vector = false;
};

struct WeightStore::Impl {
  struct Range {
    const MappedFile* file;
    size_t offset, bytes;
  };
  std::map<std::string, Entry, std::less<>> entries;
  std::vector<std::shared_ptr<const void>> owners;  ///< whatever the views point into
  std::map<int, std::vector<Range>> ranges;         ///< by layer, for prefetching
  size_t bytes = 0;
  bool mapped = true;
  int layers = 0;
  std::string fingerprint;

  // The copy on a device that somebody still holds.
  mutable std::mutex device_mutex;
  mutable const Backend* device_backend = nullptr;
  mutable std::weak_ptr<const WeightStore> device_store;

  /// Takes the memory of a vector and returns a view of it.
  std::span<const float> own(std::vector<float> values);
  void add(const std::string& name, Entry entry);
};

/// N of "model.layers.N.", or WeightStore::kTop.
int layer_of(std::string_view name);

namespace detail {
/// All of the machine for 0.
int thread_count(int wanted);
}  // namespace detail

}  // namespace bantam
