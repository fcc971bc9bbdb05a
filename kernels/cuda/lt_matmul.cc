// SPDX-License-Identifier: Apache-2.0
#include "lt_matmul.h"

#include <cublasLt.h>

#include <array>
#include <map>
#include <memory>
#include <utility>

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

// What the library knows of one kind of product, and the algorithm that it chose.
struct Plan {
  Desc desc;
  Layout a, b, c, d;  // the library's D = alpha A B + beta C
  int64_t m = 0;      // that b, c and d have now
  cublasLtMatmulAlgo_t algo;
  size_t workspace = 0;
};
using Key = std::array<int64_t, 16>;
struct Library {
  Owned<cublasLtHandle_t, cublasLtDestroy> handle;
  std::map<Key, std::unique_ptr<Plan>> plans;
};
// Steps of ever new lengths bring ever new shapes: there are at most so many plans, then they are made anew.
constexpr size_t kMostPlans = 4096;
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
void set(const Layout& l, cublasLtMatrixLayoutAttribute_t a, int64_t v) {
  const auto count = static_cast<uint64_t>(v);
  lt_check(cublasLtMatrixLayoutSetAttribute(l, a, &count, sizeof count), "cublasLtMatrixLayoutSetAttribute");
}
template <class T>
void set(const Preference& p, cublasLtMatmulPreferenceAttributes_t a, const T& v) {
  lt_check(cublasLtMatmulPreferenceSetAttribute(p, a, &v, sizeof v), "cublasLtMatmulPreferenceSetAttribute");
}

struct Alignments {
  uint32_t a, b, c, d;  // in the library's order
};

std::unique_ptr<Plan> make_plan(cublasLtHandle_t handle, const LtProduct& p, int64_t m, int64_t start_stride,
                                const Alignments& align) {
  auto plan = std::make_unique<Plan>();
  lt_check(cublasLtMatmulDescCreate(plan->desc.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t trans_a = p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t trans_b = p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, trans_a);
  set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, trans_b);
  if (p.bias) {  // along the rows of the library's D, which are the columns of c
    set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{type_of(p.c_type)});
    // The alignment of this address is what the algorithm may rely on, so it is not that of the bias that comes first.
    set(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(kBiasAlignment));
  }
  plan->m = m;
  make_layout(plan->a, p.operand_type, p.b.transposed ? p.n : p.k, p.b.transposed ? p.k : p.n, p.b.stride);
  make_layout(plan->b, p.operand_type, p.a.transposed ? p.k : m, p.a.transposed ? m : p.k, p.a.stride);
  make_layout(plan->c, p.c_type, m, p.n, start_stride);
  make_layout(plan->d, p.c_type, m, p.n, p.c_stride);

  Preference preference;
  lt_check(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kLtWorkspace});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align.a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align.b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align.c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align.d);
  // In-place split sums use atomics, whose order varies from run to run.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(handle, plan->desc, plan->a, plan->b, plan->c, plan->d, preference,
                                                     1, &result, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count < 1 || result.state != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorCode::device,
                str("cuBLASLt has no algorithm for a product of ", m, " x ", p.k, " by ", p.k, " x ", p.n,
                    " (operands ", name_of(p.operand_type), ", result ", name_of(p.c_type), p.bias ? ", bias" : "",
                    "): ", status == CUBLAS_STATUS_SUCCESS ? "none found" : cublasLtGetStatusName(status)),
                "`device: cpu` always works");
  plan->algo = result.algo;
  plan->workspace = result.workspaceSize;
  return plan;
}
}  // namespace

void lt_matmul(const LtProduct& p, float alpha, float beta, void* c, void* scratch) {
  Library& lib = library();
  const void* const start = p.start ? p.start : c;
  const int64_t start_stride = p.start ? p.start_stride : p.c_stride;
  const Alignments align = {alignment(p.b.data, p.b.stride, p.operand_type),
                            alignment(p.a.data, p.a.stride, p.operand_type), alignment(start, start_stride, p.c_type),
                            alignment(c, p.c_stride, p.c_type)};
  const int64_t algorithm_m = p.algorithm_m ? p.algorithm_m : p.m;
  const Key key = {algorithm_m,
                   p.n,
                   p.k,
                   p.a.stride,
                   p.b.stride,
                   p.c_stride,
                   p.a.transposed,
                   p.b.transposed,
                   static_cast<int64_t>(p.operand_type),
                   static_cast<int64_t>(p.c_type),
                   align.a,
                   align.b,
                   align.c,
                   align.d,
                   start_stride,
                   p.bias != nullptr};
  auto found = lib.plans.find(key);
  if (found == lib.plans.end()) {
    auto made = make_plan(lib.handle, p, algorithm_m, start_stride, align);
    if (lib.plans.size() >= kMostPlans) lib.plans.clear();
    found = lib.plans.emplace(key, std::move(made)).first;
  }
  Plan& plan = *found->second;
  if (plan.m != p.m) {  // another number of rows for the same algorithm
    set(plan.b, p.a.transposed ? CUBLASLT_MATRIX_LAYOUT_ROWS : CUBLASLT_MATRIX_LAYOUT_COLS, p.m);
    set(plan.c, CUBLASLT_MATRIX_LAYOUT_COLS, p.m);
    set(plan.d, CUBLASLT_MATRIX_LAYOUT_COLS, p.m);
    plan.m = p.m;
  }
  if (p.bias) set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  lt_check(cublasLtMatmul(lib.handle, plan.desc, &alpha, p.b.data, plan.a, p.a.data, plan.b, &beta, start, plan.c, c,
                          plan.d, &plan.algo, scratch, plan.workspace, stream()),
           "cublasLtMatmul");
}

}  // namespace bantam::cuda
