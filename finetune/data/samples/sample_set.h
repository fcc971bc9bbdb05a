// SPDX-License-Identifier: Apache-2.0
// Many samples: in memory, or in a file that is mapped, so that their number is not bounded by memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sample.h"

namespace bantam {

/// A sample that somebody else holds. weights may be empty (1 everywhere).
struct SampleView {
  SampleView() = default;
  SampleView(const Sample& s) : id(s.id), ids(s.ids), trained(s.trained), weights(s.weights) {}  // not explicit
  uint64_t id = 0;
  std::span<const int32_t> ids;
  std::span<const uint8_t> trained;
  std::span<const float> weights;
  int64_t targets() const;
  /// The same id, tokens, marks and weights.
  bool operator==(const SampleView& other) const;
};

/// A list of samples. Copies share what they hold; views live as long as any of them. Safe to read from several
/// threads.
class SampleSet {
 public:
  SampleSet() = default;
  /// Error(internal) for a sample whose ids, marks and weights do not fit each other.
  SampleSet(std::vector<Sample> samples);  // not explicit: a vector is a set
  /// Maps a file that SampleWriter made. Error(io) naming the file and what is wrong when it is not one, is cut off or
  /// damaged. `verify`: also reads all tokens once and compares their checksum, at the disk's speed; without it, damage
  /// inside tokens goes unnoticed.
  static SampleSet open(const std::filesystem::path& path, bool verify = true);

  size_t size() const { return all_ ? stored() : which_.size(); }
  bool empty() const { return size() == 0; }
  SampleView operator[](size_t i) const;  ///< i < size()
  int64_t length(size_t i) const;         ///< tokens
  uint64_t id(size_t i) const;
  int64_t tokens() const;  ///< of all samples

  /// Those at `which`, in that order, sharing the tokens. Error(internal) for one that is not there.
  SampleSet subset(std::vector<uint32_t> which) const;

  /// Identifies the samples and their order: equal for sets that were written and cut alike, in memory or in a file.
  uint64_t hash() const;
  /// The smallest and the largest token of the set, or of the one that it was cut from; 0 and -1 without tokens.
  int32_t smallest_token() const;
  int32_t largest_token() const;
  /// The text that was given to SampleWriter::finish.
  std::string_view metadata() const;

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = SampleView;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = SampleView;
    Iterator(const SampleSet* set, size_t i) : set_(set), i_(i) {}
    SampleView operator*() const { return (*set_)[i_]; }
    Iterator& operator++() { return ++i_, *this; }
    bool operator==(const Iterator&) const = default;

   private:
    const SampleSet* set_;
    size_t i_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

  struct Storage;  ///< private to the implementation

 private:
  friend class SampleWriter;
  explicit SampleSet(std::shared_ptr<const Storage> storage) : storage_(std::move(storage)) {}
  size_t stored() const;

  std::shared_ptr<const Storage> storage_;
  std::vector<uint32_t> which_;  ///< used unless all_
  bool all_ = true;
};

/// Collects samples one by one: in memory, or in a file that grows by appending. Beside the file it holds a few MiB and
/// 12 bytes per sample.
class SampleWriter {
 public:
  enum class WhenFull : uint8_t {
    raise,  ///< a write that fails is Error(io)
    go_on   ///< what is written stays in use, the rest goes to a temporary file on another disk, else into memory
  };

  /// In memory.
  SampleWriter();
  /// Into `path`; a file that is there is replaced, sets that map it stay valid. Error(io) when it cannot be created.
  /// Without finish() the file is removed again.
  explicit SampleWriter(const std::filesystem::path& path, WhenFull when_full = WhenFull::raise);
  /// Into a file without a name in the folder of temporary files, gone with the last set that uses it; in memory where
  /// that cannot be.
  static SampleWriter temporary();
  ~SampleWriter();
  SampleWriter(SampleWriter&&) noexcept;
  SampleWriter& operator=(SampleWriter&&) noexcept;

  /// Error(internal) for a sample whose ids, marks and weights do not fit each other; Error(io) naming the file when it
  /// cannot be written (disk full, ...). After an error the writer is of no more use.
  void add(const SampleView& sample);
  size_t size() const;     ///< samples so far
  int64_t tokens() const;  ///< of them

  /// Ends the file, with a text of the caller's, and maps it. Once.
  SampleSet finish(std::string_view metadata = {});
  /// Whether finish() leaves (left) the whole set in the file named at the start: not after going on elsewhere.
  bool in_file() const;
  /// Why it went on elsewhere: "FILE: cannot be written: No space left on device"; else empty.
  const std::string& why_not_in_file() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
