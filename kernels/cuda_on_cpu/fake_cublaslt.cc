// SPDX-License-Identifier: Apache-2.0
// Fake of the slice of cuBLASLt that the backend uses: D = alpha op(A) op(B) + beta C [+ bias along D's rows], with the
// real prototypes. A and B both bf16 or both f32; C and D alike, of their type or f32; a bias of D's type; f32 compute
// and scale; column order. All else is CUBLAS_STATUS_NOT_SUPPORTED, so that no passing test rests on an invention of
// the fake.
#include <cublasLt.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "engine.h"

namespace {
struct Desc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;  // D's
  const void* bias = nullptr;
};
struct Layout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t ld;
};
struct Pref {
  uint64_t workspace;
  uint32_t align[4], reduction_mask;
};
struct Algo {  // lives in cublasLtMatmulAlgo_t.data
  uint32_t magic, align[4], bias_align;
  uint64_t workspace, partial_sums;
};
// Descriptors, layouts and preferences: how many were ever made, and are there now.
unsigned long created, live;
template <class T, class Handle>
cublasStatus_t make(Handle* h, T v) {
  *h = reinterpret_cast<Handle>(new T(v));
  ++created;
  ++live;
  return CUBLAS_STATUS_SUCCESS;
}
template <class T, class Handle>
cublasStatus_t destroy(Handle h) {
  delete reinterpret_cast<T*>(h);
  --live;
  return CUBLAS_STATUS_SUCCESS;
}
constexpr uint32_t kMagic = 0xC0C0A160;
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t));

template <class T>
cublasStatus_t set(T& field, const void* value, size_t n) {
  if (n != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&field, value, n);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Real, class Handle>
Real& as(Handle h) {
  return *reinterpret_cast<Real*>(h);
}
size_t width(cudaDataType_t t) {
  return t == CUDA_R_32F ? 4 : 2;
}
float load(const void* p, size_t i, cudaDataType_t t) {
  return t == CUDA_R_32F ? static_cast<const float*>(p)[i] : __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
}
void store(void* p, size_t i, cudaDataType_t t, float v) {
  if (t == CUDA_R_32F)
    static_cast<float*>(p)[i] = v;
  else
    static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(v);
}
size_t at(const Layout& l, uint64_t row, uint64_t col) {
  return row + col * static_cast<uint64_t>(l.ld);
}
size_t extent(const Layout& l) {
  return (at(l, l.rows - 1, l.cols - 1) + 1) * width(l.type);
}

struct Shape {
  uint64_t m, n, k;
};
cublasStatus_t check(const Desc& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d, Shape* s) {
  const auto known = [](cudaDataType_t t) { return t == CUDA_R_32F || t == CUDA_R_16BF; };
  if (desc.scale != CUDA_R_32F || desc.compute != CUBLAS_COMPUTE_32F || a.type != b.type || c.type != d.type ||
      !known(a.type) || (d.type != a.type && d.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT && desc.epilogue != CUBLASLT_EPILOGUE_BIAS)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS && desc.bias_type != -1 && desc.bias_type != int32_t{d.type})
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Layout* l : {&a, &b, &c, &d})
    if (!l->rows || !l->cols || l->ld < static_cast<int64_t>(l->rows)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool ta = desc.trans_a != CUBLAS_OP_N, tb = desc.trans_b != CUBLAS_OP_N;
  *s = {ta ? a.cols : a.rows, tb ? b.rows : b.cols, ta ? a.rows : a.cols};
  const bool fits =
      (tb ? b.cols : b.rows) == s->k && d.rows == s->m && d.cols == s->n && c.rows == s->m && c.cols == s->n;
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
struct Operand {
  const void* p;
  Layout layout;
};
void gemm(const Desc& desc, Shape s, uint64_t partial_sums, float alpha, Operand a, Operand b, float beta, Operand c,
          void* d, Layout out) {
  const coc::DeviceScope on_device;
  // b as [K, N], one row of a, one row of the sum and of a part of it
  std::vector<float> fb(s.k * s.n), fa(s.k), acc(s.n), part(s.n);
  for (uint64_t k = 0; k < s.k; ++k)
    for (uint64_t j = 0; j < s.n; ++j)
      fb[k * s.n + j] = load(b.p, desc.trans_b ? at(b.layout, j, k) : at(b.layout, k, j), b.layout.type);
  for (uint64_t i = 0; i < s.m; ++i) {
    for (uint64_t k = 0; k < s.k; ++k)
      fa[k] = load(a.p, desc.trans_a ? at(a.layout, k, i) : at(a.layout, i, k), a.layout.type);
    std::fill(acc.begin(), acc.end(), 0.0f);
    for (uint64_t p = 0; p < partial_sums; ++p) {
      std::fill(part.begin(), part.end(), 0.0f);
      for (uint64_t k = p; k < s.k; k += partial_sums)
        for (uint64_t j = 0; j < s.n; ++j) part[j] += fa[k] * fb[k * s.n + j];
      for (uint64_t j = 0; j < s.n; ++j) acc[j] += part[j];
    }
    for (uint64_t j = 0; j < s.n; ++j) {
      float v = alpha * acc[j];
      if (beta != 0.0f) v += beta * load(c.p, at(c.layout, i, j), c.layout.type);  // beta 0: C is not read
      if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS) v += load(desc.bias, i, out.type);
      store(d, at(out, i, j), out.type, v);
    }
  }
}
}  // namespace

/// For tests: descriptors, layouts and preferences, made so far and there now.
extern "C" __attribute__((visibility("default"))) unsigned long coc_lt_created() {
  return created;
}
extern "C" __attribute__((visibility("default"))) unsigned long coc_lt_live() {
  return live;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  cudaError_t error;
  *h = nullptr;
  if (coc::injected("cublasLtCreate", &error)) return CUBLAS_STATUS_NOT_INITIALIZED;
  *h = reinterpret_cast<cublasLtHandle_t>(new int(1));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete reinterpret_cast<int*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t s) {
  switch (s) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS(other)";
  }
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType_t scale) {
  return make(d, Desc{.compute = compute, .scale = scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  return destroy<Desc>(d);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t n) {
  auto& d = as<Desc>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(d.trans_a, value, n);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(d.trans_b, value, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(d.epilogue, value, n);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(d.bias_type, value, n);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(d.bias, value, n);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  return make(l, Layout{type, rows, cols, ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  return destroy<Layout>(l);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t n) {
  auto& l = as<Layout>(layout);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return set(l.rows, value, n);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return set(l.cols, value, n);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  return make(p, Pref{0, {256, 256, 256, 256}, ~0u});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return destroy<Pref>(p);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t n) {
  auto& p = as<Pref>(pref);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(p.workspace, value, n);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(p.reduction_mask, value, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(p.align[0], value, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(p.align[1], value, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(p.align[2], value, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(p.align[3], value, n);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t* result, int* found) {
  *found = 0;
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  Shape shape;
  const auto status = check(as<Desc>(desc), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d), &shape);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const auto& p = as<Pref>(pref);
  const auto bias = reinterpret_cast<uintptr_t>(as<Desc>(desc).bias) | 256;  // its alignment is what is relied on
  // The real library may choose another algorithm, with another order of the sum, for each shape.
  Algo algo{kMagic,
            {p.align[0], p.align[1], p.align[2], p.align[3]},
            static_cast<uint32_t>(bias & -bias),
            std::min<uint64_t>(p.workspace, 65536),
            getenv("COC_LT_BY_SHAPE") ? 1 + (shape.m + shape.n) % 3 : 1};
  *result = {};
  memcpy(&result->algo, &algo, sizeof algo);
  result->workspaceSize = algo.workspace;
  result->state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc_handle, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb, const void* beta,
                              const void* c, cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algo_handle, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  cudaError_t error;
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (coc::injected("cublasLtMatmul", &error)) return CUBLAS_STATUS_EXECUTION_FAILED;
  const Desc desc = as<Desc>(desc_handle);
  const Operand operands[4] = {{a, as<Layout>(la)}, {b, as<Layout>(lb)}, {c, as<Layout>(lc)}, {d, as<Layout>(ld)}};
  Shape shape;
  const auto status =
      check(desc, operands[0].layout, operands[1].layout, operands[2].layout, operands[3].layout, &shape);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const float alpha_value = *static_cast<const float*>(alpha), beta_value = *static_cast<const float*>(beta);
  Algo algo;
  if (!algo_handle) return CUBLAS_STATUS_NOT_SUPPORTED;
  memcpy(&algo, algo_handle, sizeof algo);
  if (algo.magic != kMagic || algo.workspace > workspace_bytes || (algo.workspace && !workspace))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c == d && operands[2].layout.ld != operands[3].layout.ld) return CUBLAS_STATUS_INVALID_VALUE;
  // What the real library cannot see, and would answer with garbage or an illegal address, the fake reports.
  for (int i = 0; i < 4; ++i) {
    if (i == 2 && beta_value == 0.0f) continue;
    const Operand& o = operands[i];
    const size_t left = coc::device_bytes_at(o.p);
    if (left == 0) coc::fail("", 0, "cublasLtMatmul: %c is not a device pointer", "ABCD"[i]);
    if (extent(o.layout) > left)
      coc::fail("", 0, "cublasLtMatmul: %c reaches %zu bytes, its allocation has %zu", "ABCD"[i], extent(o.layout),
                left);
    if (reinterpret_cast<uintptr_t>(o.p) % algo.align[i])
      coc::fail("", 0, "cublasLtMatmul: %c is less aligned than the %u bytes that the algorithm was chosen for",
                "ABCD"[i], algo.align[i]);
  }
  if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    const size_t left = coc::device_bytes_at(desc.bias), needed = shape.m * width(operands[3].layout.type);
    if (left < needed) coc::fail("", 0, "cublasLtMatmul: the bias is %zu bytes, its allocation has %zu", needed, left);
    // Whatever was preferred for A to D, a kernel may read 16 bytes of it at once.
    const uint32_t align = std::max<uint32_t>(algo.bias_align, 16);
    if (reinterpret_cast<uintptr_t>(desc.bias) % align)
      coc::fail("", 0, "cublasLtMatmul: the bias is not aligned to the %u bytes that the algorithm relies on", align);
  }
  coc::enqueue(stream, [=] {
    if (workspace) {  // its contents do not survive
      const coc::DeviceScope on_device;
      memset(workspace, 0xff, algo.workspace);
    }
    gemm(desc, shape, algo.partial_sums, alpha_value, operands[0], operands[1], beta_value, operands[2], d,
         operands[3].layout);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
