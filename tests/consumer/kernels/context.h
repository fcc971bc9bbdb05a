// SPDX-License-Identifier: Apache-2.0
#error "a consumer's own kernels/context.h came between bantam's headers"
