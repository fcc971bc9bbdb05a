// SPDX-License-Identifier: Apache-2.0
// What the tests of tokenizers and datasets share, over the helpers of the container tests.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/text/tokenizer.h"
#include "quant/quant_testing.h"

namespace bantam::testing {

inline const nlohmann::json& text_golden() {
  static const nlohmann::json j =
      nlohmann::json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "text_golden.json"));
  return j;
}

/// The vocabulary of that name in the golden file's list.
inline const nlohmann::json& golden_entry(const char* list, std::string_view name) {
  for (const auto& entry : text_golden().at(list)) {
    if (entry.at("name") == name) return entry;
  }
  throw Error(ErrorCode::internal, str("no golden ", name));
}

/// tokenizer.json files of every part and option: models, stages, texts and the reference's ids.
inline const nlohmann::json& pipeline_golden() {
  static const nlohmann::json j =
      nlohmann::json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "tokenizer_golden.json"));
  return j;
}

inline const nlohmann::json& pipeline_case(std::string_view name) {
  for (const auto& c : pipeline_golden().at("cases")) {
    if (c.at("name") == name) return c;
  }
  throw Error(ErrorCode::internal, str("no golden ", name));
}

/// The tokenizer.json of a case.
inline nlohmann::json pipeline_file(const nlohmann::json& c) {
  nlohmann::json j = c.at("json");
  const auto model = c.at("model").get<std::string>();
  j["added_tokens"] = pipeline_golden().at("added").at(model);
  j["model"] = pipeline_golden().at("models").at(model);
  j["model"].update(c.at("options"));
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

/// "1 2 3", so that a failed comparison shows both sides.
inline std::string ids_text(std::span<const int32_t> ids) {
  std::string out;
  for (const int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

inline std::string array_of(uint32_t type, size_t n, const std::string& values) {
  return raw(type) + raw(uint64_t{n}) + values;
}

/// Text of random code points from all planes, spaces and ASCII often; reproducible.
class RandomText {
 public:
  explicit RandomText(uint64_t seed) : state_(seed) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  std::string utf8(size_t characters) {
    std::string out;
    for (size_t i = 0; i < characters; ++i) {
      static constexpr uint32_t kLimits[] = {0x80, 0x80, 0x80, 0x250, 0x3000, 0xD800, 0x10FFFF};
      uint32_t c = next() % 6 == 0 ? ' ' : next() % kLimits[next() % std::size(kLimits)];
      if (c >= 0xD800 && c < 0xE000) c = 0x2029;
      append(out, c);
    }
    return out;
  }
  std::string bytes(size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out.push_back(static_cast<char>(next()));
    return out;
  }

 private:
  static void append(std::string& out, uint32_t c) {
    const auto put = [&](uint32_t b) { out.push_back(static_cast<char>(b)); };
    if (c < 0x80) return put(c);
    if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 63));
    if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  }
  uint64_t state_;
};

inline constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
inline constexpr EncodeOptions kParsed{.add_special = false, .parse_special = true};

/// The tokenizer of a folder that holds nothing but this tokenizer.json.
inline std::shared_ptr<const Tokenizer> load_json(const nlohmann::json& j) {
  TempDir dir;
  write_file(dir / "tokenizer.json", j.dump());
  return load_tokenizer(dir.path());
}

}  // namespace bantam::testing
