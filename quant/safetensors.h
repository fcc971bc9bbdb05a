// SPDX-License-Identifier: Apache-2.0
// safetensors files: a reader that checks everything when it opens, folders of shards, and a writer that replaces the
// file only when all of it is on disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mapped_file.h"

namespace bantam {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           ///< as in the file: "F32", "BF16", "U8", ...
  std::vector<int64_t> shape;  ///< each >= 0; the byte size has been checked not to overflow
  uint64_t offset = 0;         ///< of the data, from the start of the file
  uint64_t bytes = 0;
};

/// Bytes of one element of a dtype by its name in safetensors files; 0 for names that are not known here.
size_t safetensors_dtype_size(std::string_view dtype);

/// Immutable; safe to use from several threads. Data lives as long as this object.
class SafetensorsFile {
 public:
  /// Error(model) naming the file and the tensor, whatever the bytes are.
  static std::shared_ptr<const SafetensorsFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_->path(); }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  ///< in the order of their data
  const SafetensorsEntry* find(std::string_view name) const;
  std::span<const std::byte> data(const SafetensorsEntry& e) const { return file_->bytes().subspan(e.offset, e.bytes); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Path, size, mtime and hash of the header.
  std::string fingerprint() const;

 private:
  SafetensorsFile() = default;
  void parse();
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
  size_t header_bytes_ = 0;
};

/// Decodes n elements from element `first` of an entry to f32. Error(model) for dtypes that are not F32, BF16, F16,
/// F64.
void safetensors_decode(const SafetensorsFile& file, const SafetensorsEntry& e, int64_t first, int64_t n, float* out);

/// The safetensors of a model folder: its one file, or the shards that model.safetensors.index.json names.
struct SafetensorsFolder {
  struct Item {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  std::vector<std::shared_ptr<const SafetensorsFile>> files;
  std::vector<Item> items;
  std::map<std::string, size_t, std::less<>> index;  ///< name -> item

  const Item* find(std::string_view name) const;
  std::string fingerprint() const;
};
SafetensorsFolder open_safetensors_folder(const std::filesystem::path& folder);

/// Writes a file beside its target and renames it when finished, so that a reader sees the old file or the new one.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> shape;
  };
  /// Lays out the file: tensors whose size is a multiple of 64 bytes first, so that they start at such multiples, then
  /// the others; within both by element size, so that every element is aligned. Error(io) when it cannot be created.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<Tensor> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Writes bytes of tensor i (index into the constructor's list) at a byte offset within it. Every byte is written
  /// exactly once, in any order; finish() checks the sum.
  void write(size_t i, uint64_t at, std::span<const std::byte> bytes);
  template <class T, size_t n>
  void write(size_t i, uint64_t at, std::span<T, n> values) {
    write(i, at, std::span<const std::byte>(std::as_bytes(values)));
  }
  /// Syncs and renames. Without it the destructor removes the unfinished file.
  void finish();

 private:
  struct Slot {
    uint64_t offset = 0, bytes = 0, written = 0;
  };
  std::filesystem::path path_, temporary_;
  std::vector<Tensor> tensors_;
  std::vector<Slot> slots_;
  int fd_ = -1;
};

/// Writes a small text or binary file the same way: beside, sync, rename. Error(io).
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace bantam
