// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "../../../kernels/error.h"
#include "sample_storage.h"
#include "xxh3.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void damaged(const fs::path& name, const std::string& what) {
  throw Error(ErrorCode::io, str(name.string(), ": not a whole file of samples: ", what), "remove it");
}

// Reads everything once without keeping it resident: the page cache has it, this process need not.
uint64_t hash_of(std::span<const std::byte> bytes) {
  constexpr size_t kPiece = size_t{8} << 20;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  Xxh3 hash;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    hash.add(piece.data(), piece.size());
    const auto begin = (reinterpret_cast<uintptr_t>(piece.data()) + page - 1) / page * page;
    const auto end = reinterpret_cast<uintptr_t>(piece.data() + piece.size()) / page * page;
    if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return hash.digest();
}

template <class T>
std::span<const T> take(const std::byte*& p, uint64_t n) {
  const std::span<const T> out(reinterpret_cast<const T*>(p), n);
  p += (n * sizeof(T) + 7) / 8 * 8;
  return out;
}

}  // namespace

uint64_t content_hash(uint64_t records_hash, std::span<const uint64_t> ids, std::span<const uint32_t> lengths) {
  return Xxh3()
      .add(&records_hash, sizeof records_hash)
      .add(ids.data(), ids.size_bytes())
      .add(lengths.data(), lengths.size_bytes())
      .digest();
}

std::shared_ptr<const SampleSet::Storage> read_sample_file(std::shared_ptr<const MappedFile> file, bool verify) {
  const fs::path& name = file->path();
  const auto mapping = file->bytes();
  SampleFileHeader h;
  if (mapping.size() < sizeof h) damaged(name, str(mapping.size(), " bytes, a header has ", sizeof h));
  std::memcpy(&h, mapping.data(), sizeof h);
  if (std::memcmp(h.magic, kSampleFileMagic, sizeof h.magic) != 0) damaged(name, "it does not start like one");
  if (h.version != kSampleFileVersion)
    damaged(name, str("format version ", h.version, ", this program reads ", kSampleFileVersion));
  if (h.header_hash != Xxh3::of(&h, offsetof(SampleFileHeader, header_hash))) damaged(name, "the header is damaged");
  if (h.header_bytes != sizeof h || std::any_of(h.reserved, std::end(h.reserved), [](uint64_t r) { return r != 0; }))
    damaged(name, "the header is of another kind");
  if (h.file_bytes != mapping.size()) damaged(name, str(mapping.size(), " bytes, expected ", h.file_bytes));
  // Each is at most the file's size, which is below 2^63: the sums stay in 64 bits.
  const uint64_t size = mapping.size();
  if (h.records_bytes > size || h.metadata_bytes > size || h.samples > size / 20) damaged(name, "the sizes are wrong");
  const uint64_t index_bytes = h.samples * 16 + (h.samples * 4 + 7) / 8 * 8;
  if (sizeof h + h.records_bytes + index_bytes + h.metadata_bytes != size || h.records_bytes % 8 != 0)
    damaged(name, "the sizes do not add up");
  if (size >= SampleSet::Storage::kSegmentBytes) damaged(name, "over 2^40 bytes");

  const std::byte* p = mapping.data() + sizeof h + h.records_bytes;
  if (Xxh3::of(p, index_bytes + h.metadata_bytes) != h.index_hash) damaged(name, "the index is damaged");
  auto s = std::make_shared<SampleSet::Storage>();
  s->segments = {mapping.data()};
  s->ids = take<uint64_t>(p, h.samples);
  s->offsets = take<uint64_t>(p, h.samples);
  s->lengths = take<uint32_t>(p, h.samples);
  s->metadata = {reinterpret_cast<const char*>(p), h.metadata_bytes};
  uint64_t at = sizeof h, tokens = 0;
  for (size_t i = 0; i < h.samples; ++i) {
    const uint64_t bytes = record_bytes(s->lengths[i]), end = sizeof h + h.records_bytes;
    if (s->offsets[i] != at || bytes > end - at || s->lengths[i] == kHasWeights)
      damaged(name, str("sample ", i, " lies outside the file"));
    at += bytes;
    tokens += s->lengths[i] & kMostTokens;
  }
  if (at != sizeof h + h.records_bytes || tokens != h.tokens) damaged(name, "the samples do not fill it");
  if (verify && hash_of({mapping.data() + sizeof h, h.records_bytes}) != h.records_hash)
    damaged(name, "the tokens are damaged");
  s->tokens = static_cast<int64_t>(tokens);
  s->smallest = h.smallest_token;
  s->largest = h.largest_token;
  s->hash = h.content_hash;
  s->mappings.push_back(std::move(file));
  return s;
}

SampleSet SampleSet::open(const fs::path& path, bool verify) {
  return SampleSet(read_sample_file(MappedFile::open(path, ErrorCode::io), verify));
}

}  // namespace bantam
