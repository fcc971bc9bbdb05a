// SPDX-License-Identifier: Apache-2.0
#include "lt_matmul.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <type_traits>

#include "../error.h"
#include "device.h"

namespace bantam::cuda {

namespace {
void lt_check(cublasStatus_t s, const char* what) {
  if (s == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::device, str("cuBLASLt: ", what, " failed: ", cublasLtGetStatusName(s)),
              "`device: cpu` always works");
}

// Owns a descriptor; Destroy is the library's function for its kind.
template <class Handle, cublasStatus_t (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (h_) static_cast<void>(Destroy(h_));
  }
  Handle* out() { return &h_; }
  operator Handle() const { return h_; }

 private:
  Handle h_ = nullptr;
};
using Desc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

struct Chosen {
  cublasLtMatmulAlgo_t algo;
  size_t workspace;
};
struct Library {
  Owned<cublasLtHandle_t, cublasLtDestroy> handle;
  std::map<std::array<int64_t, 15>, Chosen> algorithms;
};
Library& library() {
  thread_local Library lib;
  if (!lib.handle) lt_check(cublasLtCreate(lib.handle.out()), "cublasLtCreate");
  return lib;
}

cudaDataType_t type_of(DType t) {
  return t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The alignment in bytes, up to 16, of every row's beginning.
uint32_t alignment(const void* p, int64_t stride, DType t) {
  const auto bits = reinterpret_cast<uintptr_t>(p) | static_cast<uintptr_t>(stride) * size_of(t) | 16;
  return static_cast<uint32_t>(bits & -bits);
}

// cuBLASLt counts in columns: a row-major matrix is its transpose there. So c^T = b^T a^T, with b as the first operand.
void make_layout(Layout& l, DType t, int64_t stored_rows, int64_t stored_cols, int64_t stride) {
  lt_check(cublasLtMatrixLayoutCreate(l.out(), type_of(t), static_cast<uint64_t>(stored_cols),
                                      static_cast<uint64_t>(stored_rows), stride),
           "cublasLtMatrixLayoutCreate");
}
template <class T>
void set(const Desc& d, cublasLtMatmulDescAttributes_t a, const T& v) {
  lt_check(cublasLtMatmulDescSetAttribute(d, a, &v, sizeof v), "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(const Preference& p, cublasLtMatmulPreferenceAttributes_t a, const T& v) {
  lt_check(cublasLtMatmulPreferenceSetAttribute(p, a, &v, sizeof v), "cublasLtMatmulPreferenceSetAttribute");
}
}  // namespace

void lt_matmul(const LtProduct& p, float alpha, float beta, void* c, void* scratch) {
  Library& lib = library();
  Desc desc;
  lt_check(cublasLtMatmulDescCreate(desc.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t trans_a = p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t trans_b = p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, trans_a);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, trans_b);
  const void* const addend = p.addend ? p.addend : c;
  const int64_t addend_stride = p.addend ? p.addend_stride : p.c_stride;
  Layout la, lb, lc, ld;
  const auto make_with_rows = [&](Layout& a, Layout& c_layout, Layout& d_layout, int64_t m) {
    make_layout(a, p.operand_type, p.a.transposed ? p.k : m, p.a.transposed ? m : p.k, p.a.stride);
    make_layout(c_layout, p.c_type, m, p.n, addend_stride);
    make_layout(d_layout, p.c_type, m, p.n, p.c_stride);
  };
  make_layout(la, p.operand_type, p.b.transposed ? p.n : p.k, p.b.transposed ? p.k : p.n, p.b.stride);
  make_with_rows(lb, lc, ld, p.m);

  const uint32_t align_a = alignment(p.b.data, p.b.stride, p.operand_type);
  const uint32_t align_b = alignment(p.a.data, p.a.stride, p.operand_type);
  const uint32_t align_c = alignment(addend, addend_stride, p.c_type);
  const uint32_t align_d = alignment(c, p.c_stride, p.c_type);
  const int64_t algorithm_m = p.algorithm_m ? p.algorithm_m : p.m;
  const std::array<int64_t, 15> key = {algorithm_m,
                                       p.n,
                                       p.k,
                                       p.a.stride,
                                       p.b.stride,
                                       addend_stride,
                                       p.c_stride,
                                       p.a.transposed,
                                       p.b.transposed,
                                       static_cast<int64_t>(p.operand_type),
                                       static_cast<int64_t>(p.c_type),
                                       align_a,
                                       align_b,
                                       align_c,
                                       align_d};
  auto found = lib.algorithms.find(key);
  if (found == lib.algorithms.end()) {
    Preference preference;
    lt_check(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kLtWorkspace});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_a);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_b);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_c);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_d);
    // In-place split sums use atomics, whose order varies from run to run.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    Layout wanted_a, wanted_c, wanted_d;
    make_with_rows(wanted_a, wanted_c, wanted_d, algorithm_m);
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(lib.handle, desc, la, wanted_a, wanted_c, wanted_d, preference,
                                                       1, &result, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count < 1 || result.state != CUBLAS_STATUS_SUCCESS)
      throw Error(ErrorCode::device,
                  str("cuBLASLt has no algorithm for a product of ", algorithm_m, " x ", p.k, " by ", p.k, " x ", p.n,
                      " (operands ", name_of(p.operand_type), ", result ", name_of(p.c_type),
                      "): ", status == CUBLAS_STATUS_SUCCESS ? "none found" : cublasLtGetStatusName(status)),
                  "`device: cpu` always works");
    found = lib.algorithms.emplace(key, Chosen{result.algo, result.workspaceSize}).first;
  }
  const Chosen& chosen = found->second;
  lt_check(cublasLtMatmul(lib.handle, desc, &alpha, p.b.data, la, p.a.data, lb, &beta, addend, lc, c, ld, &chosen.algo,
                          scratch, chosen.workspace, stream()),
           "cublasLtMatmul");
}

}  // namespace bantam::cuda
