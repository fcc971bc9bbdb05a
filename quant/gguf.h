// SPDX-License-Identifier: Apache-2.0
// Reader of GGUF files, versions 1 to 3, little-endian. Everything is checked against the bytes that are there when the
// file is opened; afterwards access cannot leave the file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mapped_file.h"
#include "tensor_source.h"

namespace bantam {

/// Types of metadata values; the numbers are the file's.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};

struct GgufTensor {
  std::string name;            ///< as in the file, e.g. "blk.0.attn_q.weight"
  std::vector<int64_t> shape;  ///< row-major, outermost first (the file lists them the other way round)
  uint32_t type = 0;           ///< ggml's number
  const std::byte* data = nullptr;
  size_t bytes = 0;

  int64_t rows() const;  ///< 1 for a vector: the product of all but the innermost dimension
  int64_t cols() const;  ///< innermost dimension
};

/// Immutable; safe to use from several threads. Views returned live as long as this object.
class GgufFile {
 public:
  /// Error(model) with what was found and expected, whatever the bytes are.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_->path(); }
  uint32_t version() const { return version_; }
  /// Path, size, mtime and hash of the header.
  std::string fingerprint() const;

  // Metadata. The plain forms throw Error(model) when the key is missing; both forms when its type is another one.
  // Integers are given as int64_t whatever their width; numbers as double from any integer or float type.
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  std::vector<std::string_view> keys() const;
  std::string_view text(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::optional<std::string_view> find_text(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  std::optional<bool> find_boolean(std::string_view key) const;
  std::vector<std::string_view> text_array(std::string_view key) const;
  std::vector<int64_t> integer_array(std::string_view key) const;  ///< of integers or booleans
  std::vector<float> float_array(std::string_view key) const;      ///< of f32 or f64
  bool is_array(std::string_view key) const;
  /// general.architecture: "llama", "qwen2", ...
  std::string_view architecture() const { return text("general.architecture"); }

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;

 private:
  struct Parser;
  struct Value {
    GgufType type{};
    GgufType element{};             // arrays
    uint64_t count = 1;             // arrays
    const std::byte* at = nullptr;  // first value byte (after the array's type and count)
  };
  GgufFile() = default;
  const Value* find(std::string_view key) const;
  const Value& get(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key, const Value& v, const char* expected) const;
  std::string_view read_text(const std::byte* at, size_t* used) const;

  std::shared_ptr<const MappedFile> file_;
  uint32_t version_ = 0;
  size_t header_bytes_ = 0;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

/// Name of a ggml tensor type ("Q4_K"); "type 99" for unknown ones.
std::string gguf_type_name(uint32_t type);
/// Decodes rows [r0, r0 + n) of cols values to f32. Error(model) when the type is not decoded here.
void gguf_decode_rows(const GgufTensor& t, int64_t r0, int64_t n, float* out);
/// HF name of a GGUF tensor ("blk.0.attn_q.weight" -> "model.layers.0.self_attn.q_proj.weight") of an architecture;
/// empty when it has none (e.g. rope_freqs.weight).
std::string hf_name_of_gguf(std::string_view name, std::string_view architecture);
/// The tensors of a file under HF names, rows of llama's q and k in HF's order, norms of gemma without the
/// one that the file has added. Error(model) for a tensor whose role is not known.
std::unique_ptr<TensorSource> gguf_source(std::shared_ptr<const GgufFile> file);

}  // namespace bantam
