// SPDX-License-Identifier: Apache-2.0
#include "tensor_source.h"

#include <algorithm>
#include <cstring>

#include "../kernels/error.h"
#include "gguf.h"
#include "safetensors.h"
#include "weight_store.h"

namespace bantam {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

int64_t TensorSource::find(std::string_view name) const {
  const auto& list = tensors();
  const auto it = std::find_if(list.begin(), list.end(), [&](const SourceTensor& t) { return t.name == name; });
  return it == list.end() ? -1 : it - list.begin();
}

const SourceTensor& TensorSource::tensor_with_rows(size_t i, int64_t r0, int64_t n) const {
  const auto& list = tensors();
  if (i >= list.size()) throw Error(ErrorCode::internal, str("tensor ", i, " of ", list.size()));
  const SourceTensor& t = list[i];
  if (r0 < 0 || n < 0 || r0 > t.rows() || n > t.rows() - r0)
    throw Error(ErrorCode::internal, str("tensor '", t.name, "': rows ", r0, " to ", r0 + n, " of ", t.rows()));
  return t;
}

void TensorSource::read_rows_bf16(size_t i, int64_t r0, int64_t n, bf16* out) const {
  const SourceTensor& t = tensor_with_rows(i, r0, n);
  std::vector<float> values(static_cast<size_t>(n * t.cols()));
  read_rows(i, r0, n, values.data());
  std::transform(values.begin(), values.end(), out, to_bf16);
}

namespace {

class MemorySource : public TensorSource {
 public:
  explicit MemorySource(std::map<std::string, MemoryTensor> tensors) {
    uint64_t hash = hash_bytes({});
    for (auto& [name, t] : tensors) {
      int64_t n = 1;
      for (const int64_t d : t.shape) n *= d;
      if (n != static_cast<int64_t>(t.values.size()))
        throw Error(ErrorCode::usage,
                    str("tensor '", name, "': the shape holds ", n, " values, given are ", t.values.size()));
      list_.push_back({name, t.shape, "F32", DType::f32, "memory"});
      hash = hash_bytes(std::as_bytes(std::span<const char>(name)), hash);
      hash = hash_bytes(std::as_bytes(std::span<const int64_t>(t.shape)), hash);
      hash = hash_bytes(std::as_bytes(std::span<const float>(t.values)), hash);
      values_.push_back(std::move(t.values));
    }
    fingerprint_ = str("memory ", std::hex, hash);
  }
  const std::vector<SourceTensor>& tensors() const override { return list_; }
  void read_rows(size_t i, int64_t r0, int64_t n, float* out) const override {
    const auto& t = tensor_with_rows(i, r0, n);
    std::copy_n(values_[i].begin() + r0 * t.cols(), n * t.cols(), out);
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  std::vector<SourceTensor> list_;
  std::vector<std::vector<float>> values_;
  std::string fingerprint_;
};

class FolderSource : public TensorSource {
 public:
  explicit FolderSource(SafetensorsFolder folder) : folder_(std::move(folder)) {
    for (const auto& item : folder_.items)
      list_.push_back({item.entry->name, item.entry->shape, item.entry->dtype,
                       item.entry->dtype == "BF16" ? DType::bf16 : DType::f32, item.file->path().string()});
  }
  const std::vector<SourceTensor>& tensors() const override { return list_; }
  void read_rows(size_t i, int64_t r0, int64_t n, float* out) const override {
    const auto& t = tensor_with_rows(i, r0, n);
    safetensors_decode(*folder_.items[i].file, *folder_.items[i].entry, r0 * t.cols(), n * t.cols(), out);
  }
  void read_rows_bf16(size_t i, int64_t r0, int64_t n, bf16* out) const override {
    const auto& t = tensor_with_rows(i, r0, n);
    if (t.stored_as != "BF16") return TensorSource::read_rows_bf16(i, r0, n, out);
    const auto bytes = folder_.items[i].file->data(*folder_.items[i].entry);
    const auto row = static_cast<size_t>(t.cols()) * sizeof(bf16);
    if (n > 0) std::memcpy(out, bytes.data() + static_cast<size_t>(r0) * row, static_cast<size_t>(n) * row);
  }
  std::string fingerprint() const override { return folder_.fingerprint(); }

 private:
  SafetensorsFolder folder_;
  std::vector<SourceTensor> list_;
};

}  // namespace

std::unique_ptr<TensorSource> memory_source(std::map<std::string, MemoryTensor> tensors) {
  return std::make_unique<MemorySource>(std::move(tensors));
}

std::unique_ptr<TensorSource> open_model_files(const std::filesystem::path& path) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec))
    throw Error(ErrorCode::model, str(path.string(), ": does not exist"), "give a model folder or a .gguf file");
  if (!std::filesystem::is_directory(path, ec)) {
    if (path.extension() == ".safetensors")
      throw Error(ErrorCode::model, str(path.string(), ": is one file, expected a model folder or a .gguf file"),
                  "give the folder that holds it and config.json");
    return gguf_source(GgufFile::open(path));
  }
  SafetensorsFolder folder = open_safetensors_folder(path);
  for (const auto& item : folder.items)
    if (item.entry->name.ends_with(".quant_state.bitsandbytes__nf4")) return store_source(WeightStore::open(path));
  return std::make_unique<FolderSource>(std::move(folder));
}

}  // namespace bantam
