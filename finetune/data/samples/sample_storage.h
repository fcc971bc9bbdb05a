// SPDX-License-Identifier: Apache-2.0
// What a SampleSet holds, and the layout of its file.
//
//   header | records, one after the other | sample ids u64 | offsets u64 | lengths u32, padded to 8 | metadata
//
// A record is ids i32, weights f32 (only of samples that have some), marks u8, padded with zeros to 8 bytes. Numbers
// are little-endian; offsets count from the file's start.
#pragma once
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "../../../quant/mapped_file.h"
#include "sample_set.h"

namespace bantam {

static_assert(std::endian::native == std::endian::little, "sample files are mapped as they are");

inline constexpr char kSampleFileMagic[8] = {'b', 'n', 't', 'm', 's', 'm', 'p', '\n'};
inline constexpr uint32_t kSampleFileVersion = 1;
inline constexpr uint32_t kHasWeights = uint32_t{1} << 31;  ///< in a length
inline constexpr uint32_t kMostTokens = kHasWeights - 1;    ///< of a sample

struct SampleFileHeader {
  char magic[8];
  uint32_t version, header_bytes;
  uint64_t file_bytes, samples, tokens, records_bytes, metadata_bytes;
  uint64_t records_hash;  ///< XXH3 of all records
  uint64_t index_hash;    ///< XXH3 of what follows the records
  uint64_t content_hash;  ///< SampleSet::hash of the whole set
  int32_t smallest_token, largest_token;
  uint64_t reserved[4];  ///< zero
  uint64_t header_hash;  ///< XXH3 of what stands before it
};
static_assert(sizeof(SampleFileHeader) == 128 && std::is_trivially_copyable_v<SampleFileHeader>);

/// Bytes of a record, at most 2^35.
constexpr uint64_t record_bytes(uint32_t length) {
  const uint64_t n = length & kMostTokens;
  return (n * (length & kHasWeights ? 9 : 5) + 7) / 8 * 8;
}

struct SampleSet::Storage {
  /// An offset is segment << kSegmentBits | byte in it: a file is segment 0, so that its offsets serve as they are.
  static constexpr int kSegmentBits = 40;
  static constexpr uint64_t kSegmentBytes = uint64_t{1} << kSegmentBits;

  std::vector<const std::byte*> segments;
  std::span<const uint64_t> ids, offsets;
  std::span<const uint32_t> lengths;
  std::string_view metadata;
  int64_t tokens = 0;
  int32_t smallest = 0, largest = -1;
  uint64_t hash = 0;

  // What the above point into.
  std::vector<std::shared_ptr<const MappedFile>> mappings;  // valid after a file lost its name
  std::vector<std::unique_ptr<std::byte[]>> chunks;
  std::vector<uint64_t> own_ids, own_offsets;
  std::vector<uint32_t> own_lengths;
  std::string own_metadata;

  SampleView view(size_t i) const;
};

/// SampleSet::hash of a whole set.
uint64_t content_hash(uint64_t records_hash, std::span<const uint64_t> ids, std::span<const uint32_t> lengths);

/// Of a whole file: every size is checked before it is used. Error(io) with its name.
std::shared_ptr<const SampleSet::Storage> read_sample_file(std::shared_ptr<const MappedFile> file, bool verify);

}  // namespace bantam
