// SPDX-License-Identifier: Apache-2.0
// A backend is a table of functions. The CPU's is built in; others are shared libraries that are loaded when asked for
// and export `extern "C" const bantam::Backend* bantam_backend(int abi)`. There is no class hierarchy.
// The op functions below trust their arguments: the op's entry (<op>.cc) has checked shapes, dtypes and nulls.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace bantam {

class Context;
struct EmbeddingArgs;
struct RmsNormArgs;
struct RmsNormBackwardArgs;
struct RopeArgs;
struct ProductArgs;
struct ProductsArgs;
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
struct WeightView;
enum class Math : uint8_t;

/// What a device of a backend is.
struct DeviceInfo {
  char name[128] = {};
  int major = 0, minor = 0;     ///< compute capability
  size_t memory_total = 0;      ///< bytes
  size_t memory_free = 0;       ///< bytes, for all processes
  bool has_code = false;        ///< this build of the backend runs on it
  int driver = 0, runtime = 0;  ///< versions, 1000 * major + 10 * minor
};

/// Bytes that this process holds now, and of the device the most that it ever held.
struct MemoryUse {
  size_t now = 0, most = 0;  ///< of the device
  size_t pinned = 0;         ///< now, of the host's memory, pinned for copies between it and the device
};

/// A library whose attention a backend takes where it can (cuDNN), in place of its own kernels.
struct AttentionLibrary {
  int version = 0;     ///< 10000 * major + 100 * minor + patch; 0: there is none
  int capability = 0;  ///< of the device, 10 * major + minor
  char why[240] = {};  ///< why there is none, in words
};

struct Backend {
  static constexpr int kAbi = 4;  ///< bumped when this table or an args struct changes

  const char* name;
  bool host_memory;  ///< device pointers may be read by the host

  // Devices. All are null for a backend that is this machine's memory and cores.
  int (*device_count)();
  /// Error(device) when there is no such device.
  DeviceInfo (*device_info)(int device);
  /// Chooses the device of this process; before anything is allocated. Error(device): another one is chosen already.
  void (*open)(int device);
  /// Waits for all that was asked of the device.
  void (*synchronize)();
  MemoryUse (*memory_use)();
  /// Marks a point of time in order with the ops; `slot` counts from 0 and may be used again.
  void (*time_mark)(int slot);
  /// Seconds from one mark to another; waits for the later one.
  double (*seconds_between)(int slot, int later_slot);
  /// Names what follows, for profilers; nests.
  void (*range_begin)(const char* name);
  void (*range_end)();

  // Memory. allocate returns null when there is none; sizes in bytes; upload and download are finished on return.
  // upload_async and fill (of every byte) happen in order with the ops and wait for none; `host` is free on return.
  void* (*allocate)(size_t bytes);
  void (*release)(void* p);
  void (*upload)(void* device, const void* host, size_t bytes);
  void (*upload_async)(void* device, const void* host, size_t bytes);
  void (*download)(void* host, const void* device, size_t bytes);
  void (*fill)(void* device, int byte, size_t bytes);
  // Host memory that the device reads and writes by itself; null for a backend that works on host memory.
  // allocate_pinned returns null when there is none. The copies happen in order with the ops and wait for none: a mark
  // behind one says when `pinned` may be written again (upload), or read (download).
  void* (*allocate_pinned)(size_t bytes);
  /// Waits for all copies that use it. Null is fine.
  void (*release_pinned)(void* p);
  void (*upload_pinned)(void* device, const void* pinned, size_t bytes);
  void (*download_pinned)(void* pinned, const void* device, size_t bytes);
  /// Marks a point in order with the ops of the calling thread, in place of the slot's last; slots: see Mark.
  void (*mark)(int slot);
  /// Whether the device has come to the slot's mark; waits for nothing. True where there was none.
  bool (*reached)(int slot);
  void (*wait_for)(int slot);

  // Copies between the device and pinned host memory, beside the ops; null as above. A copy begins once all ops
  // launched before it are done; ops launched after wait_copy() run when it is. None makes the host wait.
  /// `slot` counts from 0, names the copy for wait_copy() of the same thread, and may be used again.
  void (*copy_out)(void* pinned, const void* device, size_t bytes, int slot);
  void (*copy_in)(void* device, const void* pinned, size_t bytes, int slot);
  void (*wait_copy)(int slot);

  /// What attention on that device may run through, now and in this process from now on; null: nothing but the
  /// backend's own kernels. What it takes of a device is device_scratch() of an op's arguments and of this.
  AttentionLibrary (*attention_library)(int device);

  // What ops take beside their arguments, per thread; null where that is the Context's scratch (the CPU).
  /// Allocates this thread's workspace: what an op takes within one call, device_scratch() of its arguments. From then
  /// on a larger request is Error(internal). A later call sets the size anew, keeping the memory where that is enough;
  /// 0 gives it back, and the workspace grows on demand, as it does without a call. Error(does_not_fit).
  void (*reserve_workspace)(size_t bytes);
  /// The largest request since the workspace was last given back.
  size_t (*workspace_high)();
  /// Allocates this thread's pinned memory that upload_async copies through: staging_bytes() of its largest copy. From
  /// then on a larger copy is Error(internal). A later call sets the size anew, keeping reserved memory that is enough;
  /// 0 gives it back, and the memory grows on demand, as it does without a call. Error(does_not_fit).
  void (*reserve_staging)(size_t bytes);
  /// The largest copy of upload_async since that memory was last given back.
  size_t (*staging_high)();
  /// Memory for decoded nf4 matrices, one in each slot of `slots[i]` bytes (multiples of 256), of decoded_bytes() each.
  /// A matrix takes the smallest kind of slot that it fits in; there it is kept until the slot is the least recently
  /// used of its kind and needed. Nothing but time depends on the slots. Equal slots: nothing changes; none: the memory
  /// is given back, and each product decodes anew. Error(does_not_fit).
  void (*reserve_decoded_weights)(const size_t* slots, size_t count);
  /// Begins to decode a matrix, beside what runs, for a product of `math` to come; nothing where it is decoded or is
  /// not nf4. Its codes may not be written by a kernel while it is known; upload, fill and release are noticed.
  void (*prefetch_weight)(Context&, const WeightView& w, Math math);
  /// nf4 matrices that this thread has decoded so far; `ahead`: those that prefetch_weight began with only.
  size_t (*weights_decoded)(bool ahead);

  // Ops; a null entry means that the backend lacks the op, and its entry throws Error(device).
  void (*embedding)(Context&, const EmbeddingArgs&);
  void (*rms_norm)(Context&, const RmsNormArgs&);
  void (*rms_norm_backward)(Context&, const RmsNormBackwardArgs&);
  void (*rope)(Context&, const RopeArgs&);
  void (*product)(Context&, const ProductArgs&);
  void (*products)(Context&, const ProductsArgs&);
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

/// Slots of Backend::mark, each the first of two.
enum Mark : int { kMarkQuantise = 0, kMarkMicroBatch = 2 };
/// Of the device that the context computes on; none where the backend has no such entry.
AttentionLibrary attention_library(const Context& ctx);

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
