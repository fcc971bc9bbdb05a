// SPDX-License-Identifier: Apache-2.0
// Include before hwy/foreach_target.h: the targets that the Highway kernels are compiled for. They use 8 lanes on every
// machine (see vec-inl.h), so AVX-512 would add nothing to AVX2 but compile time; vectors of unknown length are not
// used.
#pragma once
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
