// SPDX-License-Identifier: Apache-2.0
// Folders, files and a small GGUF writer for the tests of tokenizers and datasets.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/error.h"

namespace bantam::testing {

namespace fs = std::filesystem;

/// A folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> count{0};
    path_ = fs::temp_directory_path() / str("bantam_text_", getpid(), "_", count++);
    fs::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ec;
    fs::remove_all(path_, ec);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  fs::path write(const std::string& name, std::string_view content) const {
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The message and hint of the Error that `f` throws, "code|message|hint"; empty when it throws none.
template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return str(static_cast<int>(e.code()), "|", e.what(), "|", e.hint());
  }
  return {};
}
inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

inline const nlohmann::json& text_golden() {
  static const nlohmann::json j = nlohmann::json::parse(read_all(fs::path(BANTAM_TESTS_DIR) / "golden" / "text_golden.json"));
  return j;
}

inline std::string from_base64(std::string_view text) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0, have = 0;
  for (const char c : text) {
    const size_t v = kDigits.find(c);
    if (v == std::string_view::npos) continue;
    bits = (bits << 6 | static_cast<uint32_t>(v)) & 0xFFFFFF;
    if (have += 6; have >= 8) out.push_back(static_cast<char>(bits >> (have -= 8)));
  }
  return out;
}

/// GGUF 3 with metadata only.
class GgufWriter {
 public:
  void text(const std::string& key, std::string_view v) { put_key(key, 8), put_text(body_, v); }
  void u32(const std::string& key, uint32_t v) { put_key(key, 4), put(body_, v); }
  void boolean(const std::string& key, bool v) { put_key(key, 7), body_.push_back(v ? 1 : 0); }
  void texts(const std::string& key, const std::vector<std::string>& v) {
    put_array(key, 8, v.size());
    for (const auto& s : v) put_text(body_, s);
  }
  void floats(const std::string& key, const std::vector<float>& v) {
    put_array(key, 6, v.size());
    for (const float x : v) put(body_, x);
  }
  void integers(const std::string& key, const std::vector<int32_t>& v) {
    put_array(key, 5, v.size());
    for (const int32_t x : v) put(body_, x);
  }
  std::string bytes() const {
    std::string out = "GGUF";
    put(out, uint32_t{3});
    put(out, uint64_t{0});
    put(out, keys_);
    return out + body_;
  }

 private:
  template <class T>
  static void put(std::string& out, T v) {
    char raw[sizeof v];
    std::memcpy(raw, &v, sizeof v);
    out.append(raw, sizeof v);
  }
  static void put_text(std::string& out, std::string_view v) {
    put(out, uint64_t{v.size()});
    out.append(v);
  }
  void put_key(const std::string& key, uint32_t type) {
    put_text(body_, key);
    put(body_, type);
    ++keys_;
  }
  void put_array(const std::string& key, uint32_t type, size_t n) {
    put_key(key, 9);
    put(body_, type);
    put(body_, uint64_t{n});
  }
  std::string body_;
  uint64_t keys_ = 0;
};

}  // namespace bantam::testing
