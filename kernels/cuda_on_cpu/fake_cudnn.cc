// SPDX-License-Identifier: Apache-2.0
// Fake of the slice of cuDNN that the backend uses (fake_cudnn/cudnn_frontend.h): causal attention over packed
// sequences and its deterministic backward, in double, from the dims, strides, offsets and lengths that the graph and
// the call give. It refuses what cuDNN 9.28.1 with frontend 1.32 refuses of that, and takes the workspace that it
// takes.
//   COC_CUDNN=92801  the version; unset: cuDNN is not there
//   COC_SM=90        compute capability of the pretended device
//   COC_CUDNN_WORKSPACE=bytes  what each plan made from now on takes beside that
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "cudnn_frontend.h"
#include "engine.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {
using namespace cudnn_frontend;
using graph::Attention;
using graph::Tensor;

enum { kQ, kK, kV, kO, kLse, kDout, kDq, kDk, kDv };
unsigned long forwards, backwards, plans;

int64_t number(const char* name, int64_t otherwise) {
  const char* e = getenv(name);
  return e && *e ? atoll(e) : otherwise;
}
cudnn_frontend::error_t refuse(const std::string& why) {
  return {"GRAPH_NOT_SUPPORTED: " + why};
}

// One matrix of a call: where sequence s, its token and a head's row lie.
struct Rows {
  const graph::Tensor_attributes* t;
  char* data;
  const int32_t* offsets;
  size_t index(int64_t s, int64_t token, int64_t head, int64_t column) const {
    return static_cast<size_t>(offsets[s] + token * t->stride[2] + head * t->stride[1] + column);
  }
  double get(size_t i) const {
    return t->type == DataType_t::FLOAT ? reinterpret_cast<const float*>(data)[i]
                                        : __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(data)[i]);
  }
  void set(size_t i, double v) const {
    if (t->type == DataType_t::FLOAT)
      reinterpret_cast<float*>(data)[i] = static_cast<float>(v);
    else
      reinterpret_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(static_cast<float>(v));
  }
  std::vector<double> rows(int64_t s, int64_t tokens, int64_t head) const {
    std::vector<double> v;
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t c = 0; c < t->dim[3]; ++c) v.push_back(get(index(s, i, head, c)));
    return v;
  }
  void put(int64_t s, int64_t tokens, int64_t head, const std::vector<double>& v) const {
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t c = 0; c < t->dim[3]; ++c) set(index(s, i, head, c), v[static_cast<size_t>(i * t->dim[3] + c)]);
  }
};

struct Call {
  Attention attention;
  std::vector<graph::Tensor_attributes> tensors;
  std::vector<char*> data;
  std::vector<const int32_t*> offsets;
  const int32_t *lengths_q, *lengths_kv;

  Rows at(int i) const {
    const auto n = static_cast<size_t>(i);
    return {&tensors[n], data[n], offsets[n]};
  }
  // Keys [first, last] that token i sees.
  int64_t first_key(int64_t i) const { return attention.left ? std::max<int64_t>(0, i - *attention.left + 1) : 0; }

  // What cuDNN cannot see, and would answer with garbage or an illegal address, is reported.
  void check() const {
    const int64_t sequences = tensors[kQ].dim[0];
    int64_t total = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      if (lengths_q[s] != lengths_kv[s]) coc::fail("", 0, "cuDNN: sequence %ld differs in queries and keys", long(s));
      if (lengths_q[s] < 0 || lengths_q[s] > tensors[kQ].dim[2])
        coc::fail("", 0, "cuDNN: sequence %ld has %d tokens, its graph %ld", long(s), lengths_q[s],
                  long(tensors[kQ].dim[2]));
      total += lengths_q[s];
    }
    if (attention.tokens_q && (total > *attention.tokens_q || total > *attention.tokens_kv))
      coc::fail("", 0, "cuDNN: %ld tokens, its graph has at most %ld", long(total), long(*attention.tokens_q));
    for (size_t n = 0; n < tensors.size(); ++n)
      for (int64_t s = 0; s < sequences; ++s) {
        const Rows r = at(static_cast<int>(n));
        if (r.offsets[s + 1] - r.offsets[s] < lengths_q[s] * r.t->stride[2])
          coc::fail("", 0, "cuDNN: matrix %zu: sequence %ld reaches into the next", n, long(s));
        if (lengths_q[s] == 0) continue;
        const size_t width = r.t->type == DataType_t::FLOAT ? 4 : 2;
        const size_t end = r.index(s, lengths_q[s] - 1, r.t->dim[1] - 1, r.t->dim[3] - 1) + 1;
        if (end * width > coc::device_bytes_at(r.data))
          coc::fail("", 0, "cuDNN: matrix %zu reaches beyond its allocation", n);
      }
  }

  void forward() const {
    for_each([&](int64_t s, int64_t n, int64_t h, int64_t kv) {
      const auto q = at(kQ).rows(s, n, h), k = at(kK).rows(s, n, kv), v = at(kV).rows(s, n, kv);
      const int64_t d = tensors[kQ].dim[3];
      std::vector<double> o(q.size(), 0), lse(static_cast<size_t>(n)), p;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t first = first_key(i);
        p.clear();
        for (int64_t j = first; j <= i; ++j) p.push_back(score(q, i, k, j, d));
        const double m = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - m);
        for (int64_t j = first; j <= i; ++j)
          for (int64_t c = 0; c < d; ++c)
            o[static_cast<size_t>(i * d + c)] +=
                p[static_cast<size_t>(j - first)] / sum * v[static_cast<size_t>(j * d + c)];
        lse[static_cast<size_t>(i)] = m + std::log(sum);
      }
      at(kO).put(s, n, h, o);
      at(kLse).put(s, n, h, lse);
    });
  }

  void backward() const {
    std::vector<double> dk, dv;
    for_each([&](int64_t s, int64_t n, int64_t h, int64_t kv) {
      const auto q = at(kQ).rows(s, n, h), k = at(kK).rows(s, n, kv), v = at(kV).rows(s, n, kv);
      const auto o = at(kO).rows(s, n, h), dout = at(kDout).rows(s, n, h), lse = at(kLse).rows(s, n, h);
      const int64_t d = tensors[kQ].dim[3], group = tensors[kQ].dim[1] / tensors[kK].dim[1];
      std::vector<double> dq(q.size(), 0);
      if (h % group == 0) {
        dk.assign(k.size(), 0);
        dv.assign(k.size(), 0);
      }
      for (int64_t i = 0; i < n; ++i) {
        double delta = 0;
        for (int64_t c = 0; c < d; ++c)
          delta += o[static_cast<size_t>(i * d + c)] * dout[static_cast<size_t>(i * d + c)];
        for (int64_t j = first_key(i); j <= i; ++j) {
          const double p = std::exp(score(q, i, k, j, d) - lse[static_cast<size_t>(i)]);
          double dp = 0;
          for (int64_t c = 0; c < d; ++c)
            dp += dout[static_cast<size_t>(i * d + c)] * v[static_cast<size_t>(j * d + c)];
          const double ds = p * (dp - delta) * *attention.scale;
          for (int64_t c = 0; c < d; ++c) {
            const auto row = static_cast<size_t>(i * d + c), key = static_cast<size_t>(j * d + c);
            dq[row] += ds * k[key];
            dk[key] += ds * q[row];
            dv[key] += p * dout[row];
          }
        }
      }
      at(kDq).put(s, n, h, dq);
      if ((h + 1) % group != 0) return;
      at(kDk).put(s, n, kv, dk);
      at(kDv).put(s, n, kv, dv);
    });
  }

 private:
  template <class F>
  void for_each(F f) const {  // sequence, its tokens, query head, its key head
    const int64_t heads = tensors[kQ].dim[1], group = heads / tensors[kK].dim[1];
    for (int64_t s = 0; s < tensors[kQ].dim[0]; ++s)
      for (int64_t h = 0; lengths_q[s] > 0 && h < heads; ++h) f(s, lengths_q[s], h, h / group);
  }
  double score(const std::vector<double>& q, int64_t i, const std::vector<double>& k, int64_t j, int64_t d) const {
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += q[static_cast<size_t>(i * d + c)] * k[static_cast<size_t>(j * d + c)];
    return sum * *attention.scale;
  }
};
}  // namespace

namespace bantam::cuda {
void* open_cudnn(std::string* why) {
  if (number("COC_CUDNN", 0) > 0) return &plans;
  *why = "the emulated device has no cuDNN";
  return nullptr;
}
}  // namespace bantam::cuda

/// For tests, found with dlsym: forwards (0) and backwards (1) that ran through here so far, and plans made (2).
extern "C" __attribute__((visibility("default"))) unsigned long coc_cudnn_count(int what) {
  return what == 0 ? forwards : what == 1 ? backwards : plans;
}

namespace cudnn_frontend {

namespace detail {
cudnnStatus_t create_handle(cudnnHandle_t* handle) {
  cudaError_t error;
  if (!cudnn_dlhandle || coc::injected("cudnnCreate", &error)) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy_handle(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
size_t get_backend_version() {
  return static_cast<size_t>(number("COC_CUDNN", 0));
}
}  // namespace detail

namespace graph {

Tensor Graph::tensor(const Tensor_attributes& t) {
  return all_.emplace_back(std::make_shared<Tensor_attributes>(t));
}
std::array<Tensor, 2> Graph::sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SDPA_attributes& a) {
  attention_ = a.a;
  const Tensor o = tensor({}), lse = tensor({});
  matrices_ = {q, k, v, o, lse};
  return {o, lse};
}
std::array<Tensor, 3> Graph::sdpa_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                           const Tensor& dout, const Tensor& stats, const SDPA_backward_attributes& a) {
  backward_ = true;
  attention_ = a.a;
  const Tensor dq = tensor({}), dk = tensor({}), dv = tensor({});
  matrices_ = {q, k, v, o, stats, dout, dq, dk, dv};
  return {dq, dk, dv};
}

error_t Graph::validate() {
  const auto version = static_cast<int64_t>(detail::get_backend_version());
  if (io_ != DataType_t::BFLOAT16 || compute_ != DataType_t::FLOAT || intermediate_ != DataType_t::FLOAT)
    return refuse("the types of a graph are bf16, f32 and f32");
  if (sm_ == 0) return refuse("no device to ask for its compute capability");
  if (matrices_.empty() || !attention_.scale) return refuse("no attention, or without its scale");
  std::set<int64_t> uids;
  for (const Tensor& t : all_)
    if (t->uid == 0 || !uids.insert(t->uid).second) return refuse("a tensor without a number of its own");
  const auto& q = matrices_[kQ]->dim;
  if (q.size() != 4) return refuse("q has no dims");
  const int64_t b = q[0], h = q[1], s = q[2], d = q[3];
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const Tensor& t = matrices_[i];
    const bool keys = i == kK || i == kV || i == kDk || i == kDv, lse = i == kLse;
    if (t->dim.size() != 4 || t->stride.size() != 4 || t->stride[3] != 1) return refuse("a matrix of wrong rank");
    const int64_t heads = keys ? matrices_[kK]->dim[1] : h;
    if (t->dim != std::vector<int64_t>{b, heads, s, lse ? 1 : d}) return refuse("matrices that do not fit together");
    if (t->type != (lse ? DataType_t::FLOAT : DataType_t::BFLOAT16)) return refuse("a matrix of a wrong type");
    if (!lse && (t->stride[0] % 8 || t->stride[1] % 8 || t->stride[2] % 8))
      return refuse("a stride that is no multiple of 16 bytes");
    if (t->output != (backward_ ? i >= kDq : i == kO || lse)) return refuse("an output that is none, or the reverse");
    if (!t->offsets || t->offsets->dim != std::vector<int64_t>{b + 1, 1, 1, 1} || t->offsets->type != DataType_t::INT32)
      return refuse("the fake knows packed sequences only");
  }
  if (h % matrices_[kK]->dim[1] != 0) return refuse("heads are no multiple of the heads of keys");
  if (!attention_.padding_mask || !attention_.lengths_q || !attention_.lengths_kv)
    return refuse("ragged offsets are only supported with padding mask, which needs both lengths");
  for (const Tensor& t : {attention_.lengths_q, attention_.lengths_kv})
    if (t->dim != std::vector<int64_t>{b, 1, 1, 1} || t->type != DataType_t::INT32) return refuse("wrong lengths");
  if (attention_.alignment != DiagonalAlignment_t::TOP_LEFT || attention_.right != 0)
    return refuse("the fake knows causal masks only");
  if (attention_.left && *attention_.left <= 0) return refuse("left bound should be greater than zero");
  if (d % 8 != 0 || d > 256) return refuse("hidden_dim should be a multiple of 8 and at most 256");
  if (sm_ < 80) return refuse("requires SM80");
  if (version == 91000 || version == 91001) return refuse("not supported on cuDNN 9.10.0/9.10.1 due to known bugs");
  if (sm_ < 90 && version < 91801) return refuse("THD is only supported in Hopper and above");
  if (backward_) {
    const int major = sm_ / 10;
    if (s == 1) return refuse("s_q = s_kv = 1 is not supported");
    if (d > (major == 9 || (major == 10 && version >= 92300 && d == 256) ? 256 : 128))
      return refuse("hidden_dim should be less than or equal to 128");
    if (attention_.deterministic && major == 10 && version < 91800) return refuse("deterministic: cuDNN below 9.18");
    if (attention_.deterministic && (major == 8 || major == 12))
      return refuse("deterministic algorithm is not supported for bprop thd on SM8X and SM12X GPUs");
    if (!attention_.deterministic) coc::fail("", 0, "cuDNN: a backward that is not deterministic");
  } else if (!attention_.stats) {
    return refuse("the fake gives stats always");
  }
  stage_ = 1;
  return {};
}
error_t Graph::build_operation_graph(cudnnHandle_t handle) {
  if (!handle || stage_ != 1) return refuse("build_operation_graph before validate");
  stage_ = 2;
  return {};
}
error_t Graph::create_execution_plans(const std::vector<HeurMode_t>& modes) {
  if (modes.empty() || stage_ != 2) return refuse("create_execution_plans before build_operation_graph");
  stage_ = 3;
  return {};
}
error_t Graph::check_support() {
  return stage_ == 3 ? error_t{} : refuse("check_support before create_execution_plans");
}
error_t Graph::build_plans() {
  if (stage_ != 3) return refuse("build_plans before create_execution_plans");
  stage_ = 4;
  ++plans;
  const auto& q = matrices_[kQ]->dim;
  const int64_t b = q[0], h = q[1], s = q[2], d = q[3], kv = matrices_[kK]->dim[1];
  workspace_ = sm_ >= 90 && sm_ < 120 ? 17408 : 0;
  if (backward_) {  // as measured with cuDNN 9.28.1, see kernels/cudnn_shapes.h
    const bool by_tokens = attention_.tokens_q && attention_.tokens_kv && d % 16 == 0;
    const auto rows = [&](int i) {
      return by_tokens ? *attention_.tokens_q * matrices_[static_cast<size_t>(i)]->stride[2] *
                             (i == kDk || i == kDv ? h / kv : 1)
                       : b * h * s * (i == kLse ? 1 : d);
    };
    const bool ordered = sm_ / 10 == 9 && detail::get_backend_version() >= 92500 &&
                         number("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", -1) == 0;
    workspace_ = 4 * (rows(kLse) + (h != kv ? rows(kDk) + rows(kDv) : 0)) + 1280 + 448 * b;
    if (ordered) workspace_ += 4 * rows(kDq) + 8 * b * h * (s / 64);
    if (sm_ / 10 == 9 && !ordered) workspace_ += 2 * b * h * s * s;
  }
  workspace_ += number("COC_CUDNN_WORKSPACE", 0);
  return {};
}
error_t Graph::get_workspace_size(int64_t& bytes) const {
  if (stage_ != 4) return refuse("no plan");
  bytes = workspace_;
  return {};
}

error_t Graph::execute(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& pointers, void* workspace) const {
  cudaError_t error;
  if (coc::injected("cudnnBackendExecute", &error)) return {"CUDNN_STATUS_EXECUTION_FAILED"};
  if (!handle || stage_ != 4) return {"INVALID_VALUE: no handle or no plan"};
  Call call{attention_, {}, {}, {}, nullptr, nullptr};
  const auto pointer = [&](const Tensor& t, size_t align) -> char* {
    const auto found = pointers.find(t->uid);
    if (found == pointers.end() || !found->second) return nullptr;
    if (coc::device_bytes_at(found->second) == 0)
      coc::fail("", 0, "cuDNN: tensor %ld is no device pointer", long(t->uid));
    if (reinterpret_cast<uintptr_t>(found->second) % align)
      coc::fail("", 0, "cuDNN: tensor %ld is not aligned to %zu bytes", long(t->uid), align);
    return static_cast<char*>(found->second);
  };
  bool all = true;
  for (const Tensor& t : matrices_) {
    call.tensors.push_back(*t);
    call.data.push_back(pointer(t, 16));
    call.offsets.push_back(reinterpret_cast<const int32_t*>(pointer(t->offsets, 4)));
    all &= call.data.back() && call.offsets.back();
  }
  call.lengths_q = reinterpret_cast<const int32_t*>(pointer(attention_.lengths_q, 4));
  call.lengths_kv = reinterpret_cast<const int32_t*>(pointer(attention_.lengths_kv, 4));
  if (!all || !call.lengths_q || !call.lengths_kv) return {"INVALID_VARIANT_PACK: a tensor has no pointer"};
  if (workspace_ > 0 && coc::device_bytes_at(workspace) < static_cast<size_t>(workspace_))
    coc::fail("", 0, "cuDNN: the workspace has %zu bytes, the plan takes %ld", coc::device_bytes_at(workspace),
              long(workspace_));
  ++(backward_ ? backwards : forwards);
  coc::enqueue(handle->stream, [call, backward = backward_, workspace, bytes = static_cast<size_t>(workspace_)] {
    const coc::DeviceScope on_device;
    call.check();
    if (bytes > 0) memset(workspace, 0xff, bytes);  // its contents do not survive
    backward ? call.backward() : call.forward();
  });
  return {};
}

}  // namespace graph
}  // namespace cudnn_frontend
