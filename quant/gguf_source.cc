// SPDX-License-Identifier: Apache-2.0
// A GGUF file as a source of tensors under HF names.
#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "../kernels/error.h"
#include "gguf.h"

namespace bantam {

namespace {

constexpr std::pair<std::string_view, std::string_view> kTopNames[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr std::pair<std::string_view, std::string_view> kLayerNames[] = {
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},     {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_qkv", "self_attn.qkv_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"attn_norm", "input_layernorm"},   {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},          {"ffn_down", "mlp.down_proj"},
};

// Families with a second pair of norms around each half name the one before the MLP differently.
constexpr std::pair<std::string_view, std::string_view> kSandwichNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

// gate and up stand in one matrix there.
constexpr std::pair<std::string_view, std::string_view> kPhi3Names[] = {{"ffn_up", "mlp.gate_up_proj"}};

template <size_t N>
std::string_view lookup(const std::pair<std::string_view, std::string_view> (&table)[N], std::string_view key) {
  for (const auto& [from, to] : table)
    if (from == key) return to;
  return {};
}

}  // namespace

std::string hf_name_of_gguf(std::string_view name, std::string_view architecture) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view kind = name.substr(dot), stem = name.substr(0, dot);
  if (kind != ".weight" && kind != ".bias") return {};
  if (!stem.starts_with("blk.")) {
    const auto to = lookup(kTopNames, stem);
    return to.empty() ? std::string() : str(to, kind);
  }
  const size_t end = stem.find('.', 4);
  if (end == std::string_view::npos) return {};
  unsigned layer = 0;
  const auto [p, ec] = std::from_chars(stem.data() + 4, stem.data() + end, layer);
  if (ec != std::errc() || p != stem.data() + end || end == 4) return {};
  const std::string_view part = stem.substr(end + 1);
  std::string_view to;
  if (architecture == "gemma2" || architecture == "gemma3") to = lookup(kSandwichNames, part);
  if (architecture == "phi3") to = lookup(kPhi3Names, part);
  if (to.empty()) to = lookup(kLayerNames, part);
  return to.empty() ? std::string() : str("model.layers.", layer, ".", to, kind);
}

namespace {

class GgufSource : public TensorSource {
 public:
  explicit GgufSource(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {
    const std::string arch(file_->architecture());
    std::set<std::string> seen;
    for (const auto& t : file_->tensors()) {
      const std::string name = hf_name_of_gguf(t.name, arch);
      if (name.empty()) {
        // Rope factors are derived from the configuration; anything else would be lost without a word.
        if (t.name.starts_with("rope_") || t.name.ends_with(".attn_rot_embd")) continue;
        throw Error(
            ErrorCode::model,
            str(file_->path().string(), ": tensor '", t.name, "' of architecture '", arch, "' has no known role"),
            "this model's family is not supported as GGUF; try its safetensors");
      }
      if (!seen.insert(name).second)
        throw Error(ErrorCode::model, str(file_->path().string(), ": two tensors are '", name, "'"));
      int64_t heads = 0;
      if (arch == "llama") heads = permuted_heads(arch, t);
      list_.push_back(
          {name, t.shape, gguf_type_name(t.type), t.type == 30 ? DType::bf16 : DType::f32, file_->path().string()});
      items_.push_back({&t, heads, arch.starts_with("gemma") && name.ends_with("norm.weight")});
    }
  }

  const std::vector<SourceTensor>& tensors() const override { return list_; }
  std::string fingerprint() const override { return file_->fingerprint(); }

  void read_rows(size_t i, int64_t r0, int64_t n, float* out) const override {
    const auto& s = tensor_with_rows(i, r0, n);
    const auto& [t, heads, one_added] = items_[i];
    const int64_t cols = s.cols();
    if (heads == 0) {
      if (s.shape.size() == 1) {
        read_vector(*t, r0, n, out);
        if (one_added)
          for (int64_t k = 0; k < n; ++k) out[k] -= 1.0f;
        return;
      }
      const int64_t inner = s.rows() > 0 ? t->rows() / s.rows() : 0;  // rank > 2: file rows per row of ours
      return gguf_decode_rows(*t, r0 * inner, n * inner, out);
    }
    // HF's row (head, part, j) stands in the file at (head, j, part).
    const int64_t dim = s.rows() / heads, half = dim / 2;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t r = r0 + k, head = r / dim, part = r % dim / half, j = r % half;
      const int64_t from = head * dim + 2 * j + part;
      if (s.shape.size() == 1)
        read_vector(*t, from, 1, out + k);
      else
        gguf_decode_rows(*t, from, 1, out + k * cols);
    }
  }

 private:
  struct Item {
    const GgufTensor* tensor;
    int64_t heads;   // 0: rows stand in HF's order
    bool one_added;  // gemma's norms: HF keeps w, the converter writes 1 + w
  };

  // A vector is one row of the file and many rows of one element here.
  static void read_vector(const GgufTensor& t, int64_t r0, int64_t n, float* out) {
    std::vector<float> all(static_cast<size_t>(t.cols()));
    gguf_decode_rows(t, 0, 1, all.data());
    std::copy_n(all.begin() + r0, n, out);
  }

  // The converter reorders rows of q and k of the llama architecture to pairs; k has its own number of heads.
  int64_t permuted_heads(const std::string& arch, const GgufTensor& t) const {
    if (!t.name.starts_with("blk.")) return 0;
    const bool q = t.name.ends_with(".attn_q.weight") || t.name.ends_with(".attn_q.bias");
    const bool k = t.name.ends_with(".attn_k.weight") || t.name.ends_with(".attn_k.bias");
    if (!q && !k) return 0;
    const std::string key = arch + ".attention.head_count";
    const int64_t q_heads = file_->integer(key);
    const int64_t heads = q ? q_heads : file_->find_integer(key + "_kv").value_or(q_heads);
    if (heads < 1 || t.shape[0] % heads != 0 || t.shape[0] / heads % 2 != 0)
      throw Error(ErrorCode::model, str(file_->path().string(), ": tensor '", t.name, "' has ", t.shape[0],
                                        " rows, which do not divide into ", heads, " heads of even size"));
    return heads;
  }

  std::shared_ptr<const GgufFile> file_;
  std::vector<SourceTensor> list_;
  std::vector<Item> items_;
};

}  // namespace

std::unique_ptr<TensorSource> gguf_source(std::shared_ptr<const GgufFile> file) {
  return std::make_unique<GgufSource>(std::move(file));
}

}  // namespace bantam
