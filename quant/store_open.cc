// SPDX-License-Identifier: Apache-2.0
// Opening a folder of quantised weights as bitsandbytes serialises them, or of plain ones.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "../kernels/error.h"
#include "../kernels/nf4_codebook.h"
#include "safetensors.h"
#include "weight_store_impl.h"

namespace bantam {

namespace {

using nlohmann::json;
using Item = SafetensorsFolder::Item;

constexpr std::string_view kState = ".quant_state.bitsandbytes__nf4", kStateFp4 = ".quant_state.bitsandbytes__fp4";
constexpr std::string_view kParts[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"};

class Opener {
 public:
  Opener(SafetensorsFolder folder, WeightStore::Impl& store) : folder_(std::move(folder)), store_(store) {}

  void run() {
    std::set<std::string_view> parts;
    for (const auto& item : folder_.items) {
      const std::string& name = item.entry->name;
      if (name.ends_with(kStateFp4))
        bad(item, "fp4 quantisation, expected nf4", "quantise the original model again as nf4");
      if (name.ends_with(kState)) quantised(name.substr(0, name.size() - kState.size()), item, parts);
    }
    for (const auto& item : folder_.items)
      if (!parts.contains(item.entry->name)) plain(item);
    for (const auto& f : folder_.files) store_.owners.push_back(f);
    store_.fingerprint = folder_.fingerprint();
  }

 private:
  [[noreturn]] void bad(const Item& item, const std::string& what, std::string hint = {}) const {
    throw Error(ErrorCode::model, str(item.file->path().string(), ": tensor '", item.entry->name, "': ", what),
                hint.empty() ? "quantise the original model again" : std::move(hint));
  }

  const Item& part(const std::string& base, std::string_view suffix, const Item& state,
                   std::set<std::string_view>& parts) {
    const Item* p = folder_.find(base + std::string(suffix));
    if (!p) bad(state, str("its part '", base, suffix, "' is missing"));
    parts.insert(p->entry->name);
    return *p;
  }

  void expect(const Item& item, const char* dtype, int64_t count, const char* what) const {
    int64_t n = 1;
    for (const int64_t d : item.entry->shape) n *= d;
    if (item.entry->dtype != dtype || n != count)
      bad(item, str(item.entry->dtype, " with ", n, " values, expected ", dtype, " with ", count, " (", what, ")"));
  }

  // Points into the file, or, where a writer did not align the data, at a copy.
  std::span<const float> floats(const Item& item) {
    const auto bytes = item.file->data(*item.entry);
    const size_t n = bytes.size() / 4;
    if (item.entry->dtype == "F32" && reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) == 0)
      return {reinterpret_cast<const float*>(bytes.data()), n};
    const auto count = static_cast<int64_t>(bytes.size() / safetensors_dtype_size(item.entry->dtype));
    std::vector<float> copy(static_cast<size_t>(count));
    safetensors_decode(*item.file, *item.entry, 0, count, copy.data());
    return store_.own(std::move(copy));
  }

  void count(const Item& item, int layer) {
    store_.bytes += item.entry->bytes;
    store_.ranges[layer].push_back({item.file->file().get(), item.entry->offset, item.entry->bytes});
  }

  static json parse_state(const SafetensorsFile& file, const SafetensorsEntry& e) {
    const auto bytes = file.data(e);
    const char* text = reinterpret_cast<const char*>(bytes.data());
    return json::parse(text, text + bytes.size(), nullptr, false);
  }

  void quantised(const std::string& base, const Item& state, std::set<std::string_view>& parts) {
    parts.insert(state.entry->name);
    if (state.entry->dtype != "U8") bad(state, str("dtype ", state.entry->dtype, ", expected U8"));
    const json blob = parse_state(*state.file, *state.entry);
    if (!blob.is_object()) bad(state, "is not a JSON object");
    const auto need = [&](const char* key, bool right_type) {
      if (!blob.contains(key)) bad(state, str("has no '", key, "'"));
      if (!right_type)
        bad(state, str("'", key, "' is ", blob[key].dump(-1, ' ', true, json::error_handler_t::replace),
                       ", not what it should be"));
    };
    const auto is = [&](const char* key, const json& value) { need(key, blob.contains(key) && blob[key] == value); };
    is("quant_type", "nf4");
    is("blocksize", WeightView::kBlock);
    const json& shape = blob.contains("shape") ? blob["shape"] : json();
    int64_t rows = 0, cols = 0, n = 0;
    const auto positive = [](const json& d) {
      return d.is_number_unsigned() && d.get<uint64_t>() > 0 && d.get<uint64_t>() <= INT64_MAX;
    };
    need("shape", shape.is_array() && shape.size() == 2 && positive(shape[0]) && positive(shape[1]));
    rows = shape[0].get<int64_t>();
    cols = shape[1].get<int64_t>();
    if (__builtin_mul_overflow(rows, cols, &n) || n > INT64_MAX / 8)
      bad(state, str("the product of shape ", shape.dump(), " overflows"));
    const int64_t blocks = (n + WeightView::kBlock - 1) / WeightView::kBlock;

    const Item& codes = part(base, "", state, parts);
    if (codes.entry->bytes != static_cast<uint64_t>((n + 1) / 2))
      bad(codes,
          str("has ", codes.entry->bytes, " bytes of codes, expected ", (n + 1) / 2, " for shape ", shape.dump()));
    const Item& map = part(base, ".quant_map", state, parts);
    expect(map, "F32", 16, "the NF4 code");
    if (std::memcmp(map.file->data(*map.entry).data(), kNf4Code, sizeof kNf4Code) != 0)
      bad(map, "is not the NF4 code", "only NF4 with its standard code is read");

    WeightStore::Entry e;
    e.matrix.format = WeightFormat::nf4;
    e.matrix.rows = rows;
    e.matrix.cols = e.matrix.stride = cols;
    e.matrix.data = codes.file->data(*codes.entry).data();
    const int layer = layer_of(base);
    count(codes, layer);
    const Item& absmax = part(base, ".absmax", state, parts);
    count(absmax, layer);
    if (blob.contains("nested_offset") || folder_.find(base + ".nested_absmax") || absmax.entry->dtype == "U8") {
      is("nested_blocksize", WeightView::kNestedBlock);
      is("nested_dtype", "float32");
      need("nested_offset", blob.contains("nested_offset") && blob["nested_offset"].is_number());
      e.matrix.nested_offset = blob["nested_offset"].get<float>();
      if (!std::isfinite(e.matrix.nested_offset)) bad(state, "'nested_offset' is not finite");
      expect(absmax, "U8", blocks, "one scale per block of 64");
      const Item& nested = part(base, ".nested_absmax", state, parts);
      const Item& nested_map = part(base, ".nested_quant_map", state, parts);
      expect(nested, "F32", (blocks + WeightView::kNestedBlock - 1) / WeightView::kNestedBlock, "one per 256 scales");
      expect(nested_map, "F32", 256, "the map of 8-bit scales");
      count(nested, layer);
      e.matrix.absmax_q = reinterpret_cast<const uint8_t*>(absmax.file->data(*absmax.entry).data());
      e.matrix.nested_absmax = floats(nested).data();
      e.matrix.nested_code = floats(nested_map).data();
      for (int i = 0; i < 256; ++i)
        if (!std::isfinite(e.matrix.nested_code[i])) bad(nested_map, str("value ", i, " is not finite"));
    } else {
      expect(absmax, "F32", blocks, "one scale per block of 64");
      e.matrix.absmax = floats(absmax).data();
    }
    store_.add(base, std::move(e));
  }

  void plain(const Item& item) {
    const SafetensorsEntry& t = *item.entry;
    for (const std::string_view suffix : kParts)
      if (t.name.ends_with(suffix))
        bad(item, str("is a part of a quantised tensor without '", t.name.substr(0, t.name.size() - suffix.size()),
                      kState, "'"));
    if (t.dtype != "F32" && t.dtype != "BF16" && t.dtype != "F16")
      bad(item, str("dtype ", t.dtype, ", expected F32, BF16, F16 or NF4 with its parts"),
          "this kind of quantisation is not read");
    WeightStore::Entry e;
    count(item, layer_of(t.name));
    if (t.shape.size() < 2) {
      e.is_vector = true;
      e.vector = floats(item);
    } else {
      int64_t cols = 1;
      for (size_t i = 1; i < t.shape.size(); ++i) cols *= t.shape[i];
      const std::byte* data = item.file->data(t).data();
      if (t.dtype == "BF16" && reinterpret_cast<uintptr_t>(data) % alignof(bf16) == 0) {
        e.matrix = WeightView(ConstTensorView(data, DType::bf16, t.shape[0], cols));
      } else {
        const auto values = floats(item);
        if (reinterpret_cast<const std::byte*>(values.data()) != data) store_.mapped = false;
        e.matrix = WeightView(ConstTensorView(values.data(), DType::f32, t.shape[0], cols));
      }
    }
    store_.add(t.name, std::move(e));
  }

  SafetensorsFolder folder_;
  WeightStore::Impl& store_;
};

}  // namespace

std::shared_ptr<const WeightStore> WeightStore::open(const std::filesystem::path& folder) {
  auto impl = std::make_unique<Impl>();
  Opener(open_safetensors_folder(folder), *impl).run();
  return std::make_shared<const WeightStore>(std::move(impl));
}

}  // namespace bantam
