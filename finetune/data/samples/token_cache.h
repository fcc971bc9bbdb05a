// SPDX-License-Identifier: Apache-2.0
// Prepared data on disk, so that the second start with the same data maps what the first one made.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "sample_set.h"
#include "xxh3.h"

namespace bantam {

/// Names a cache entry by all that its content depends on: data, tokenizer, template, limits, masks. The version of the
/// file's format is in it already; a caller whose own code changes what comes out adds a version too.
class CacheKey {
 public:
  CacheKey();
  /// Pieces do not run together: ("a", "bc") is another key than ("ab", "c").
  CacheKey& add(std::string_view name, std::string_view bytes);
  template <class T>
  requires std::is_arithmetic_v<T> CacheKey& add(std::string_view name, T value) {
    return add(name, std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
  }
  /// The bytes of a file, read once at the disk's speed; neither its name nor its times. Error(io) when it cannot be
  /// read or is no regular file: what can be read only once cannot be cached.
  CacheKey& add_file(const std::filesystem::path& path);
  std::string text() const;  ///< 32 hex digits

 private:
  Xxh3 hash_;
};

class TokenCacheWriter;

/// A folder of sample files. Safe for several processes at once, also over a network: an entry is whole or absent.
class TokenCache {
 public:
  /// The folder is created by the first writer; a cache that cannot be written to still reads.
  explicit TokenCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The samples of that key, with the metadata given to commit(); none when there are none or the entry is damaged
  /// (`damage` then says how), which the next commit replaces. All tokens are read and compared with their checksum.
  /// An entry that is found counts as used now.
  std::optional<SampleSet> find(const std::string& key, std::string* damage = nullptr) const;

  /// Collects the samples of a key. Removes what writers left behind that were killed more than a day ago.
  TokenCacheWriter writer(const std::string& key) const;

  /// Removes the entries that were not used for longest until at most `max_bytes` are left; sets that map one stay
  /// valid. Returns how many bytes it freed.
  uint64_t trim(uint64_t max_bytes) const;

  std::filesystem::path entry(const std::string& key) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

/// Writes beside the entry and renames on commit. Where the cache cannot take the samples (no permission, disk full)
/// they are collected all the same, in a temporary file or in memory: a cache never stops a run.
class TokenCacheWriter {
 public:
  void add(const SampleView& sample) { writer_.add(sample); }
  size_t size() const { return writer_.size(); }
  int64_t tokens() const { return writer_.tokens(); }
  /// The set, in the cache or not. Once.
  SampleSet commit(std::string_view metadata);
  /// After commit: why the cache does not have it; empty when it has.
  const std::string& why_not_cached() const { return why_; }

 private:
  friend class TokenCache;
  TokenCacheWriter(SampleWriter writer, std::filesystem::path temporary, std::filesystem::path entry, std::string why)
      : writer_(std::move(writer)), temporary_(std::move(temporary)), entry_(std::move(entry)), why_(std::move(why)) {}

  SampleWriter writer_;
  std::filesystem::path temporary_, entry_;
  std::string why_;
};

}  // namespace bantam
