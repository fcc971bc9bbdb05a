// SPDX-License-Identifier: Apache-2.0
#include "safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "../kernels/dtype.h"
#include "../kernels/error.h"

namespace bantam {

namespace {

using nlohmann::json;

// The reference implementation's limit; no real header is near it.
constexpr uint64_t kMaxHeader = 100'000'000;

[[noreturn]] void bad(const std::filesystem::path& path, const std::string& what, std::string hint = {}) {
  throw Error(ErrorCode::model, str(path.string(), ": ", what),
              hint.empty() ? "download or export the file again" : std::move(hint));
}

uint64_t as_unsigned(const json& v, const std::filesystem::path& path, const std::string& what) {
  if (!v.is_number_unsigned()) bad(path, str(what, " is ", v.dump(), ", expected a whole number that is not negative"));
  return v.get<uint64_t>();
}

SafetensorsEntry parse_entry(const std::filesystem::path& path, const std::string& name, const json& v, uint64_t data) {
  const std::string who = str("tensor '", name, "'");
  if (!v.is_object()) bad(path, str(who, ": expected an object with dtype, shape and data_offsets"));
  SafetensorsEntry e;
  e.name = name;
  const auto dtype = v.find("dtype"), shape = v.find("shape"), offsets = v.find("data_offsets");
  if (dtype == v.end() || !dtype->is_string()) bad(path, str(who, ": dtype is missing or not a text"));
  e.dtype = dtype->get<std::string>();
  const size_t size = safetensors_dtype_size(e.dtype);
  if (size == 0) bad(path, str(who, ": unknown dtype '", e.dtype, "'"));
  if (shape == v.end() || !shape->is_array()) bad(path, str(who, ": shape is missing or not a list"));
  if (shape->size() > 8) bad(path, str(who, ": shape has ", shape->size(), " dimensions, at most 8 are read"));
  uint64_t bytes = size;
  bool empty = false, overflow = false;
  for (const json& d : *shape) {
    const uint64_t n = as_unsigned(d, path, str(who, ": a dimension"));
    if (n > static_cast<uint64_t>(INT64_MAX)) overflow = true;
    e.shape.push_back(static_cast<int64_t>(n));
    if (n == 0) empty = true;
    if (n != 0 && __builtin_mul_overflow(bytes, n, &bytes)) overflow = true;
  }
  // Also where another dimension is 0: rows times columns are computed elsewhere, and rounded up to whole slabs.
  if (overflow || bytes > static_cast<uint64_t>(INT64_MAX) / 128)
    bad(path, str(who, ": the size of shape ", shape->dump(), " overflows"));
  if (empty) bytes = 0;
  if (offsets == v.end() || !offsets->is_array() || offsets->size() != 2)
    bad(path, str(who, ": data_offsets is missing or not a list of two numbers"));
  const uint64_t begin = as_unsigned((*offsets)[0], path, str(who, ": data_offsets[0]"));
  const uint64_t end = as_unsigned((*offsets)[1], path, str(who, ": data_offsets[1]"));
  if (begin > end) bad(path, str(who, ": data_offsets [", begin, ", ", end, "] are reversed"));
  if (end > data)
    bad(path, str(who, ": data ends at byte ", end, " of ", data, " that are there: the file is cut short"));
  if (end - begin != bytes)
    bad(path, str(who, ": ", e.dtype, " ", shape->dump(), " needs ", bytes, " bytes, data_offsets [", begin, ", ", end,
                  "] hold ", end - begin));
  e.offset = begin;  // the caller adds where data starts
  e.bytes = bytes;
  return e;
}

}  // namespace

size_t safetensors_dtype_size(std::string_view dtype) {
  static const std::map<std::string_view, size_t> sizes = {
      {"BOOL", 1}, {"U8", 1},   {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U16", 2}, {"I16", 2},
      {"F16", 2},  {"BF16", 2}, {"U32", 4}, {"I32", 4},     {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}};
  const auto it = sizes.find(dtype);
  return it == sizes.end() ? 0 : it->second;
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  std::shared_ptr<SafetensorsFile> f(new SafetensorsFile);
  f->file_ = MappedFile::open(path);
  f->parse();
  return f;
}

void SafetensorsFile::parse() {
  const auto bytes = file_->bytes();
  if (const std::string wrong = describe_wrong_file(bytes); !wrong.empty())
    bad(path(), str("this is ", wrong), "fetch the real file (git lfs pull, or download it again)");
  if (bytes.size() < 8) bad(path(), str("not a safetensors file: ", bytes.size(), " bytes, a header needs at least 8"));
  uint64_t n = 0;
  for (int i = 0; i < 8; ++i) n |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  if (n > bytes.size() - 8)
    bad(path(), str("the header is ", n, " bytes long, the file has ", bytes.size() - 8,
                    " after the length: not a safetensors file, or cut short"));
  if (n > kMaxHeader) bad(path(), str("the header is ", n, " bytes long, at most ", kMaxHeader, " are read"));
  if (n < 2 || bytes[8] != std::byte{'{'}) bad(path(), "not a safetensors file: the header does not start with '{'");
  header_bytes_ = 8 + n;
  const uint64_t data = bytes.size() - header_bytes_;

  json header;
  std::vector<std::set<std::string>> seen(3);  // keys by depth; nothing deeper is legal
  const char* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  std::string duplicate;
  bool deep = false;
  try {
    header = json::parse(text, text + n, [&](int depth, json::parse_event_t event, json& v) {
      if (depth > 3) deep = true;
      if (event == json::parse_event_t::object_start && depth < 2) seen[depth + 1].clear();
      if (event == json::parse_event_t::key && depth >= 1 && depth <= 2 &&
          !seen[depth].insert(v.get<std::string>()).second)
        duplicate = v.get<std::string>();
      return !deep;
    });
  } catch (const json::exception& e) {
    bad(path(), str("the header is not JSON: ", e.what()));
  }
  if (deep) bad(path(), "the header is nested too deeply");
  if (!duplicate.empty()) bad(path(), str("the header has the key '", duplicate, "' twice"));
  if (!header.is_object()) bad(path(), "the header is not a JSON object");

  for (const auto& [name, v] : header.items()) {
    if (name == "__metadata__") {
      if (!v.is_object()) bad(path(), "__metadata__ is not an object");
      for (const auto& [key, value] : v.items()) {
        if (!value.is_string()) bad(path(), str("__metadata__: the value of '", key, "' is not a text"));
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    entries_.push_back(parse_entry(path(), name, v, data));
  }
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  uint64_t at = 0;
  for (auto& e : entries_) {
    if (e.offset != at)
      bad(path(), str("tensor '", e.name, "' starts at byte ", e.offset, " of the data, expected ", at,
                      e.offset < at ? ": it overlaps another" : ": there is a hole before it"));
    at = e.offset + e.bytes;
    e.offset += header_bytes_;
  }
  if (at != data) bad(path(), str("the tensors cover ", at, " bytes of data, the file has ", data));
  for (size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &entries_[it->second];
}

std::string SafetensorsFile::fingerprint() const {
  return str(file_->identity(), " header=", std::hex, hash_bytes(file_->bytes().first(header_bytes_)));
}

void safetensors_decode(const SafetensorsFile& file, const SafetensorsEntry& e, int64_t first, int64_t n, float* out) {
  // Data may start at any byte, so elements are copied out rather than read through a typed pointer.
  const std::byte* p = file.data(e).data() + static_cast<uint64_t>(first) * safetensors_dtype_size(e.dtype);
  if (e.dtype == "F32") {
    if (n > 0) std::memcpy(out, p, static_cast<size_t>(n) * 4);
  } else if (e.dtype == "BF16" || e.dtype == "F16") {
    const bool brain = e.dtype == "BF16";
    for (int64_t i = 0; i < n; ++i) {
      uint16_t h;
      std::memcpy(&h, p + 2 * i, 2);
      out[i] = brain ? to_f32(bf16{h}) : f16_to_f32(h);
    }
  } else if (e.dtype == "F64") {
    for (int64_t i = 0; i < n; ++i) {
      double d;
      std::memcpy(&d, p + 8 * i, 8);
      out[i] = static_cast<float>(d);
    }
  } else {
    bad(file.path(), str("tensor '", e.name, "' has dtype ", e.dtype, ", expected F32, BF16, F16 or F64"),
        "convert the model to bf16 first");
  }
}

}  // namespace bantam
