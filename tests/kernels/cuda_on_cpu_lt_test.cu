// SPDX-License-Identifier: Apache-2.0
// Products through the emulated cuBLASLt: what it computes, refuses and stops at, and what lt_matmul keeps of it.
#include "cuda_on_cpu_harness.h"
// The portable header comes first.
#include <cublasLt.h>

#include <cstdlib>

#include "kernels/cuda/lt_matmul.h"

using namespace bantam;
using namespace bantam::cuda;
using namespace bantam::cuda::test;

extern "C" unsigned long coc_lt_created();
extern "C" unsigned long coc_lt_live();

namespace {
TEST_CASE("cuBLASLt: c = alpha a b + beta c in both layouts, types and with row strides") {
  constexpr int64_t kM = 5, kN = 3, kK = 4;
  const auto a_at = [](int64_t i, int64_t k) { return static_cast<float>(i - 2 * k); };
  const auto b_at = [](int64_t k, int64_t j) { return static_cast<float>(3 * k - j); };
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true})
      for (const DType c_type : {DType::f32, DType::bf16}) {
        const int64_t a_stride = (a_transposed ? kM : kK) + 3, b_stride = (b_transposed ? kK : kN) + 1;
        std::vector<bf16> a(static_cast<size_t>(8 * 8)), b(a);
        for (int64_t i = 0; i < kM; ++i)
          for (int64_t k = 0; k < kK; ++k)
            a[static_cast<size_t>(a_transposed ? k * a_stride + i : i * a_stride + k)] = to_bf16(a_at(i, k));
        for (int64_t k = 0; k < kK; ++k)
          for (int64_t j = 0; j < kN; ++j)
            b[static_cast<size_t>(b_transposed ? j * b_stride + k : k * b_stride + j)] = to_bf16(b_at(k, j));
        const Device<bf16> da(a), db(b);
        const Device<char> scratch(kLtWorkspace);
        const LtProduct p{
            kM,     kN, kK, DType::bf16, {da.get(), a_stride, a_transposed}, {db.get(), b_stride, b_transposed},
            c_type, kN};
        const auto check = [&]<class C>(std::vector<C> c) {
          for (auto& v : c) v = from_f32<C>(2.0f);
          const Device<C> dc(c);
          lt_matmul(p, 0.5f, 1.0f, dc.get(), scratch.get());
          c = dc.host();
          for (int64_t i = 0; i < kM; ++i)
            for (int64_t j = 0; j < kN; ++j) {
              float want = 0;
              for (int64_t k = 0; k < kK; ++k) want += a_at(i, k) * b_at(k, j);
              CHECK(to_f32(c[static_cast<size_t>(i * kN + j)]) == 0.5f * want + 2.0f);
            }
        };
        if (c_type == DType::f32)
          check(std::vector<float>(kM * kN));
        else
          check(std::vector<bf16>(kM * kN));
      }
  // What the library would refuse is refused in words.
  const Device<float> f(64);
  const Device<char> scratch(kLtWorkspace);
  const LtProduct p{2, 2, 2, DType::f32, {f.get(), 2, false}, {f.get(), 2, false}, DType::bf16, 2};
  CHECK_THROWS_WITH(lt_matmul(p, 1.0f, 0.0f, f.get(), scratch.get()),
                    "cuBLASLt has no algorithm for a product of 2 x 2 by 2 x 2 (operands f32, result bf16): "
                    "CUBLAS_STATUS_NOT_SUPPORTED");
}

TEST_CASE("cuBLASLt: products with one algorithm_m add up a row in one order") {
  constexpr int64_t kRows = 3, kN = 4, kK = 200;
  std::vector<float> values(static_cast<size_t>(kN * kK));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f / static_cast<float>(1 + i * i % 97);
  const Device<float> a(values), b(values), c(static_cast<size_t>(kRows * kN));
  const Device<char> scratch(kLtWorkspace);
  const auto first_row = [&](int64_t m, int64_t algorithm_m) {
    LtProduct p{m, kN, kK, DType::f32, {a.get(), kK, false}, {b.get(), kN, false}, DType::f32, kN};
    p.algorithm_m = algorithm_m;
    lt_matmul(p, 1.0f, 0.0f, c.get(), scratch.get());
    auto h = c.host();
    h.resize(kN);
    return h;
  };
  setenv("COC_LT_BY_SHAPE", "1", 1);  // as the real library may
  CHECK(first_row(1, 0) != first_row(kRows, 0));
  const auto one = first_row(1, 512);
  CHECK(one == first_row(kRows, 512));
  CHECK(one == first_row(kRows, 515));  // the emulated orders repeat every three rows
  unsetenv("COC_LT_BY_SHAPE");
}

TEST_CASE("cuBLASLt: a bias is added to each row before the one rounding") {
  constexpr int64_t kM = 3, kN = 5, kK = 2, kStride = 8;
  const Device<bf16> a(std::vector<bf16>(kM * kK, to_bf16(16.0f))), b(std::vector<bf16>(kK * kN, to_bf16(8.0f)));
  const Device<char> scratch(kLtWorkspace);
  const auto check = [&]<class C>(DType type, std::vector<C> c, const std::vector<float>& values) {
    std::vector<C> bias;
    for (const float v : values) bias.push_back(from_f32<C>(v));
    const Device<C> dbias(bias);
    for (auto& v : c) v = from_f32<C>(1.0f);
    const Device<C> dc(c);
    LtProduct p{kM, kN, kK, DType::bf16, {a.get(), kK, false}, {b.get(), kN, false}, type, kStride};
    p.bias = dbias.get();
    lt_matmul(p, 1.0f, 1.0f, dc.get(), scratch.get());
    c = dc.host();
    for (size_t i = 0; i < c.size(); ++i) {
      const size_t column = i % kStride;
      CHECK(to_f32(c[i]) == (column < kN ? 257.0f + values[column] : 1.0f));
    }
  };
  check(DType::f32, std::vector<float>(kM * kStride), {0.5f, -1, 2, 3, 4});
  // bf16 has no 257: rounded before the bias, each of these would be 256 and a bias of 1 lost.
  check(DType::bf16, std::vector<bf16>(kM * kStride), {1, 3, 5, -1, -3});
}

// The library's own functions, with a bias in D = A B of m rows.
struct BiasCall {
  cudaDataType_t d_type = CUDA_R_16BF;
  int32_t bias_type = CUDA_R_16BF;
  uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  const void* bias = nullptr;

  cublasStatus_t run() const {
    constexpr uint64_t kSide = 16;
    const Device<bf16> a(std::vector<bf16>(kSide * kSide, to_bf16(1.0f)));
    const Device<float> d(kSide * kSide);
    const Device<char> scratch(kLtWorkspace);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, ld;
    cublasLtMatmulPreference_t preference;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_16BF, kSide, kSide, kSide);
    cublasLtMatrixLayoutCreate(&ld, d_type, kSide, kSide, kSide);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulHeuristicResult_t chosen{};
    int found = 0;
    auto status = cublasLtMatmulAlgoGetHeuristic(handle, desc, la, la, ld, ld, preference, 1, &chosen, &found);
    const float one = 1, zero = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmul(handle, desc, &one, a.get(), la, a.get(), la, &zero, d.get(), ld, d.get(), ld,
                              &chosen.algo, scratch.get(), kLtWorkspace, stream());
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(ld);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    return status;
  }
};
TEST_CASE("cuBLASLt: biases that the library has no kernel for are refused, what it cannot see is reported") {
  const Device<bf16> bias(std::vector<bf16>(64, to_bf16(1.0f)));
  const BiasCall good{.bias = bias.get()};
  CHECK(good.run() == CUBLAS_STATUS_SUCCESS);
  BiasCall c = good;
  c.bias_type = -1;  // D's
  CHECK(c.run() == CUBLAS_STATUS_SUCCESS);
  c.bias_type = CUDA_R_32F;
  CHECK(c.run() == CUBLAS_STATUS_NOT_SUPPORTED);
  c = good;
  c.d_type = CUDA_R_32F;
  CHECK(c.run() == CUBLAS_STATUS_NOT_SUPPORTED);
  c = good;
  c.epilogue = CUBLASLT_EPILOGUE_GELU_BIAS;
  CHECK(c.run() == CUBLAS_STATUS_NOT_SUPPORTED);
  for (const auto& [words, p] : {std::pair<const char*, const bf16*>{"its allocation has 0", nullptr},
                                 {"the bias is 32 bytes, its allocation has 16", bias.get() + 56},
                                 {"not aligned to the 16 bytes that the algorithm relies on", bias.get() + 4}}) {
    c = good;
    c.bias = p;
    check_words(words, [&c] { c.run(); });
  }
}

TEST_CASE("cuBLASLt: what describes a product is made once, and a bounded number of them is kept") {
  const Device<float> a(std::vector<float>(4096, 1.0f)), b(std::vector<float>(64, 1.0f)), c(4096);
  const Device<char> scratch(kLtWorkspace);
  LtProduct p{4, 4, 4, DType::f32, {a.get(), 4, false}, {b.get(), 4, false}, DType::f32, 4};
  const auto run = [&] { lt_matmul(p, 1.0f, 0.0f, c.get(), scratch.get()); };
  p.bias = b.get();
  p.algorithm_m = 7;
  run();
  const unsigned long created = coc_lt_created();
  for (int step = 0; step < 3; ++step)
    for (int64_t m = 1; m <= 7; ++m) {  // one algorithm; the bias is elsewhere each time
      p.m = m;
      p.bias = b.get() + 4 * m;
      run();
      CHECK(c.host()[static_cast<size_t>(4 * m - 1)] == 5);
    }
  CHECK(coc_lt_created() == created);
  p.bias = nullptr;  // another kind
  run();
  CHECK(coc_lt_created() > created);

  constexpr unsigned long kMost = 4096, kEach = 5;
  p = {1, 1, 1, DType::f32, {a.get(), 1, false}, {b.get(), 1, false}, DType::f32, 1};
  for (int64_t i = 1; i <= 5000; ++i) {
    p.a.stride = i;
    run();
  }
  CHECK(coc_lt_live() <= kMost * kEach);
  CHECK(c.host()[0] == 1);
}

}  // namespace
