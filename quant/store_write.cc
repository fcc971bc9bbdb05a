// SPDX-License-Identifier: Apache-2.0
// Writing a folder of quantised weights as bitsandbytes serialises them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "../kernels/error.h"
#include "../kernels/nf4_codebook.h"
#include "nf4.h"
#include "quantiser.h"
#include "safetensors.h"
#include "weight_store_impl.h"

namespace bantam {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// The offset is known only after quantising, and the layout of the file before: the text is filled up with blanks.
constexpr size_t kOffsetDigits = 24;

std::string state_text(const SourceTensor& t, bool nested, float offset) {
  ordered_json j = {{"quant_type", "nf4"},
                    {"blocksize", WeightView::kBlock},
                    {"dtype", t.natural == DType::bf16 ? "bfloat16" : "float32"},
                    {"shape", t.shape}};
  if (nested) {
    j["nested_blocksize"] = WeightView::kNestedBlock;
    j["nested_dtype"] = "float32";
    j["nested_offset"] = static_cast<double>(offset);
  }
  return j.dump();
}

class StoreWriter {
 public:
  StoreWriter(const TensorSource& source, const QuantConfig& quant, const StoreOptions& options)
      : source_(source),
        quant_(quant),
        options_(options),
        quantiser_(source, detail::thread_count(options.threads),
                   quant.type == QuantType::nf4 ? options.device : nullptr) {}

  void run(const fs::path& path) {
    for (size_t i = 0; i < source_.tensors().size(); ++i) plan(i);
    SafetensorsWriter writer(path, slots_, {{"format", "pt"}, {"written_by", "bantam"}});
    size_t slot = 0;
    for (size_t i = 0; i < source_.tensors().size(); ++i) {
      slot += quantised(i) ? write_quantised(writer, i, slot) : write_plain(writer, i, slot);
      if (options_.progress)
        options_.progress({i + 1, source_.tensors().size(), source_.tensors()[i].name, quantiser_.device_bytes()});
    }
    writer.finish();
  }

 private:
  const SourceTensor& tensor(size_t i) const { return source_.tensors()[i]; }
  bool quantised(size_t i) const { return quant_.type == QuantType::nf4 && is_quantised_tensor(tensor(i)); }
  size_t state_bytes(size_t i) const {
    return state_text(tensor(i), quant_.double_quant, 0).size() + (quant_.double_quant ? kOffsetDigits : 0);
  }

  // The order of the slots here is the order of the writes below.
  void plan(size_t i) {
    const SourceTensor& t = tensor(i);
    if (!quantised(i)) {
      slots_.push_back({t.name, t.natural == DType::bf16 ? "BF16" : "F32", t.shape});
      return;
    }
    const int64_t n = t.rows() * t.cols(), blocks = (n + WeightView::kBlock - 1) / WeightView::kBlock;
    slots_.push_back({t.name, "U8", {(n + 1) / 2, 1}});
    slots_.push_back({t.name + ".absmax", quant_.double_quant ? "U8" : "F32", {blocks}});
    slots_.push_back({t.name + ".quant_map", "F32", {16}});
    slots_.push_back({t.name + ".quant_state.bitsandbytes__nf4", "U8", {static_cast<int64_t>(state_bytes(i))}});
    if (!quant_.double_quant) return;
    slots_.push_back(
        {t.name + ".nested_absmax", "F32", {(blocks + WeightView::kNestedBlock - 1) / WeightView::kNestedBlock}});
    slots_.push_back({t.name + ".nested_quant_map", "F32", {256}});
  }

  size_t write_quantised(SafetensorsWriter& writer, size_t i, size_t slot) {
    const Nf4Matrix m = quantiser_.quantise(i, quant_.double_quant);
    writer.write(slot, 0, std::span(static_cast<const std::byte*>(m.codes.view().data), m.codes.bytes()));
    if (quant_.double_quant)
      writer.write(slot + 1, 0, std::span(m.absmax_q));
    else
      writer.write(slot + 1, 0, std::span(m.absmax));
    writer.write(slot + 2, 0, std::span(kNf4Code));
    std::string state = state_text(tensor(i), quant_.double_quant, m.nested_offset);
    state.resize(std::max(state.size(), state_bytes(i)), ' ');
    writer.write(slot + 3, 0, std::span(state));
    if (!quant_.double_quant) return 4;
    writer.write(slot + 4, 0, std::span(m.nested_absmax));
    writer.write(slot + 5, 0, std::span(dynamic_map()));
    return 6;
  }

  size_t write_plain(SafetensorsWriter& writer, size_t i, size_t slot) {
    const SourceTensor& t = tensor(i);
    const int64_t rows = t.rows(), cols = t.cols(), step = detail::slab_rows(rows, cols);
    std::vector<float> slab;
    std::vector<bf16> rounded;
    for (int64_t r = 0; r < rows; r += step) {
      const int64_t n = std::min(step, rows - r);
      slab.resize(static_cast<size_t>(n * cols));
      source_.read_rows(i, r, n, slab.data());
      detail::require_finite(t, slab.data(), n * cols, r * cols);
      const uint64_t first = static_cast<uint64_t>(r * cols);
      if (t.natural == DType::bf16) {
        rounded.resize(slab.size());
        std::transform(slab.begin(), slab.end(), rounded.begin(), to_bf16);
        writer.write(slot, first * 2, std::span(rounded));
      } else {
        writer.write(slot, first * 4, std::span(slab));
      }
    }
    return 1;
  }

  const TensorSource& source_;
  const QuantConfig& quant_;
  const StoreOptions& options_;
  Quantiser quantiser_;
  std::vector<SafetensorsWriter::Tensor> slots_;
};

}  // namespace

void write_store(const TensorSource& source, const QuantConfig& quant, const fs::path& folder,
                 const StoreOptions& options) {
  for (const auto& [name, content] : options.files)
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name == "model.safetensors")
      throw Error(ErrorCode::internal, str("write_store: '", name, "' is not the plain name of a further file"));
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) throw Error(ErrorCode::io, str(folder.string(), ": cannot be created: ", ec.message()));
  // An index of shards that lies there would hide the new file.
  if (fs::exists(folder / "model.safetensors.index.json", ec))
    throw Error(ErrorCode::io, str(folder.string(), ": holds a sharded model already"),
                "give an empty or a new folder");
  for (const auto& [name, content] : options.files) write_file_atomically(folder / name, content);
  StoreWriter(source, quant, options).run(folder / "model.safetensors");
}

std::string with_quantization_config(std::string_view config_json, const QuantConfig& quant) {
  ordered_json config = ordered_json::parse(config_json, nullptr, false);
  if (!config.is_object()) throw Error(ErrorCode::model, "config.json is not a JSON object");
  config.erase("quantization_config");
  if (quant.type == QuantType::nf4)
    config["quantization_config"] = {{"_load_in_4bit", true},
                                     {"_load_in_8bit", false},
                                     {"bnb_4bit_compute_dtype", "bfloat16"},
                                     {"bnb_4bit_quant_storage", "uint8"},
                                     {"bnb_4bit_quant_type", "nf4"},
                                     {"bnb_4bit_use_double_quant", quant.double_quant},
                                     {"llm_int8_enable_fp32_cpu_offload", false},
                                     {"llm_int8_has_fp16_weight", false},
                                     {"llm_int8_skip_modules", {"lm_head"}},
                                     {"llm_int8_threshold", 6.0},
                                     {"load_in_4bit", true},
                                     {"load_in_8bit", false},
                                     {"quant_method", "bitsandbytes"}};
  return config.dump(2) + "\n";
}

}  // namespace bantam
