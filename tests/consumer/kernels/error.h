// SPDX-License-Identifier: Apache-2.0
#error "a consumer's own kernels/error.h came between bantam's headers"
