// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests in this folder: reproducible values, and hand-made container files.
#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/error.h"
#include "temp_dir.h"

namespace bantam::testing {

/// The same floats as reference_values() in golden/make_nf4_golden.py.
inline std::vector<float> reference_values(int64_t n, uint32_t seed, float scale) {
  std::vector<float> out(static_cast<size_t>(n));
  uint32_t s = seed;
  for (float& x : out) {
    float v = 0;
    for (int k = 0; k < 4; ++k) {
      s = s * 1664525u + 1013904223u;
      v += static_cast<float>(static_cast<int32_t>(s >> 8) - (1 << 23)) * (1.0f / 8388608.0f);
    }
    x = v * scale;
  }
  return out;
}

template <class T>
std::string raw(const T& v) {
  return {reinterpret_cast<const char*>(&v), sizeof v};
}
template <class T>
std::string raw(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

/// A safetensors file with any header, right or wrong.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  return raw(static_cast<uint64_t>(header.size())) + header + data;
}

/// Builds GGUF files, right or wrong.
class GgufBuilder {
 public:
  explicit GgufBuilder(uint32_t version = 3, uint32_t alignment = 32) : version_(version), alignment_(alignment) {}

  std::string text(const std::string& s) const { return count(s.size()) + s; }
  std::string count(uint64_t n) const { return version_ == 1 ? raw(static_cast<uint32_t>(n)) : raw(n); }
  void value(const std::string& key, uint32_t type, const std::string& bytes) {
    values_ += text(key) + raw(type) + bytes;
    ++value_count_;
  }
  void value_text(const std::string& key, const std::string& v) { value(key, 8, text(v)); }
  void value_u32(const std::string& key, uint32_t v) { value(key, 4, raw(v)); }
  void value_text_array(const std::string& key, const std::vector<std::string>& v) {
    std::string bytes = raw(uint32_t{8}) + count(v.size());
    for (const auto& s : v) bytes += text(s);
    value(key, 9, bytes);
  }
  /// Dimensions in the file's order, innermost first.
  void tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, const std::string& bytes) {
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
    infos_ += text(name) + raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) infos_ += count(d);
    infos_ += raw(type) + raw(static_cast<uint64_t>(data_.size()));
    data_ += bytes;
    ++tensor_count_;
  }
  size_t header_size() const { return 8 + 2 * (version_ == 1 ? 4 : 8) + values_.size() + infos_.size(); }
  std::string bytes() const {
    std::string out = "GGUF" + raw(version_) + count(tensor_count_) + count(value_count_) + values_ + infos_;
    if (tensor_count_ > 0) out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
    return out + data_;
  }

 private:
  uint32_t version_, alignment_;
  uint64_t value_count_ = 0, tensor_count_ = 0;
  std::string values_, infos_, data_;
};

/// Runs f and gives the error's message and hint; empty when there was none. Other exceptions go through.
template <class F>
std::string error_of(F&& f, ErrorCode expected = ErrorCode::model) {
  try {
    f();
  } catch (const Error& e) {
    if (e.code() != expected) return str("code ", static_cast<int>(e.code()), ": ", e.what());
    return str(e.what(), " | ", e.hint());
  }
  return {};
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace bantam::testing
