// SPDX-License-Identifier: Apache-2.0
// A backend is a table of functions. The CPU's is built in; others are shared libraries that are loaded when asked for
// and export `extern "C" const bantam::Backend* bantam_backend(int abi)`. There is no class hierarchy.
// The op functions below trust their arguments: the op's entry (<op>.cc) has checked shapes, dtypes and nulls.
#pragma once
#include <cstddef>
#include <string>

namespace bantam {

class Context;
struct EmbeddingArgs;
struct RmsNormArgs;
struct RmsNormBackwardArgs;
struct RopeArgs;
struct ProductArgs;
struct GatedActArgs;
struct GatedActBackwardArgs;
struct AttentionArgs;
struct AttentionBackwardArgs;
struct CrossEntropyArgs;
struct DropoutArgs;
struct CopyArgs;
struct AdamwArgs;
struct GradNormArgs;
struct QuantizeNf4Args;

struct Backend {
  static constexpr int kAbi = 2;  ///< bumped when this table or an args struct changes

  const char* name;
  bool host_memory;  ///< device pointers may be read by the host

  // Memory. allocate returns null when there is none; sizes in bytes; upload and download are finished on return.
  // upload_async and fill (of every byte) happen in order with the ops and wait for none; `host` is free on return.
  void* (*allocate)(size_t bytes);
  void (*release)(void* p);
  void (*upload)(void* device, const void* host, size_t bytes);
  void (*upload_async)(void* device, const void* host, size_t bytes);
  void (*download)(void* host, const void* device, size_t bytes);
  void (*fill)(void* device, int byte, size_t bytes);

  // Ops; a null entry means that the backend lacks the op, and its entry throws Error(device).
  void (*embedding)(Context&, const EmbeddingArgs&);
  void (*rms_norm)(Context&, const RmsNormArgs&);
  void (*rms_norm_backward)(Context&, const RmsNormBackwardArgs&);
  void (*rope)(Context&, const RopeArgs&);
  void (*product)(Context&, const ProductArgs&);
  void (*gated_act)(Context&, const GatedActArgs&);
  void (*gated_act_backward)(Context&, const GatedActBackwardArgs&);
  void (*attention)(Context&, const AttentionArgs&);
  void (*attention_backward)(Context&, const AttentionBackwardArgs&);
  void (*cross_entropy)(Context&, const CrossEntropyArgs&);
  void (*dropout)(Context&, const DropoutArgs&);
  void (*copy)(Context&, const CopyArgs&);
  void (*adamw)(Context&, const AdamwArgs&);
  void (*grad_norm)(Context&, const GradNormArgs&);
  void (*quantize_nf4)(Context&, const QuantizeNf4Args&);
};

/// The built-in CPU backend.
const Backend& cpu_backend();

/// Loads a backend library once per process: a path (with a '/'), or a name N for libbantam_N.so beside this program or
/// library, in ../lib/bantam of it, or where the dynamic loader looks. Errors: Error(device) with the loader's words.
const Backend& load_backend(const std::string& name_or_path);

namespace detail {
/// Used by op entries: `require(ctx.backend().rope, ctx, "rope")` is the function, or Error(device) when it is null.
[[noreturn]] void throw_no_op(const Context& ctx, const char* op);
template <class F>
F require(F f, const Context& ctx, const char* op) {
  if (!f) throw_no_op(ctx, op);
  return f;
}
}  // namespace detail

}  // namespace bantam
