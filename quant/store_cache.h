// SPDX-License-Identifier: Apache-2.0
// Quantised stores of models, kept on disk so that the second start maps what the first one made.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "weight_store.h"

namespace bantam {

/// Name of the cache entry: depends on the source's fingerprint, the quantisation and the version of the format.
std::string store_cache_key(const TensorSource& source, const QuantConfig& quant);

/// Whether cache_dir has an entry of this source; not whether it opens.
bool store_is_cached(const TensorSource& source, const QuantConfig& quant, const std::filesystem::path& cache_dir);

/// The store of a source, from cache_dir when it is there, else quantised into it. An entry is built beside and
/// renamed, so it is whole or absent; two processes may ask at once. An entry that does not open is built anew. An
/// entry is the same whoever quantised it: `threads` and `device` as in StoreOptions.
std::shared_ptr<const WeightStore> cached_store(const TensorSource& source, const QuantConfig& quant,
                                                const std::filesystem::path& cache_dir,
                                                const std::function<void(const StoreProgress&)>& progress = {},
                                                int threads = 0, Context* device = nullptr);

}  // namespace bantam
