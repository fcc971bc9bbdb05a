// SPDX-License-Identifier: Apache-2.0
#include "cu_portable.cuh"
// The portable header comes first.
#include <algorithm>
#include <mutex>
#include <tuple>
#include <vector>

#include "../device_scratch.h"
#include "../error.h"
#include "decoded_weights.h"
#include "nf4.cuh"

namespace bantam::cuda {

namespace {

constexpr int kThreads = 256, kValues = 8, kRounds = 4;

__device__ __forceinline__ void store8(float* p, const float (&v)[8]) {
  const float low[4] = {v[0], v[1], v[2], v[3]}, high[4] = {v[4], v[5], v[6], v[7]};
  store4(p, low);
  store4(p + 4, high);
}
__device__ __forceinline__ void store8(bf16* p, const float (&v)[8]) {
  *reinterpret_cast<uint4*>(p) =
      make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7]));
}

// out[i] = code value * block scale, rounded to T. A thread decodes 4 bytes, 8 values of one block of 64, at a time: so
// a warp reads and writes whole cache lines.
template <class T>
__global__ void __launch_bounds__(kThreads)
    nf4_dequantize_kernel(const uint8_t* __restrict__ codes, const float* __restrict__ absmax,
                          const uint8_t* __restrict__ absmax_q, const float* __restrict__ nested_absmax,
                          const float* __restrict__ nested_code, float nested_offset, T* __restrict__ out, int64_t n,
                          bool aligned) {
  CU_SHARED(float, table, [16]);
  load_nf4_table(table);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kRounds * kThreads + threadIdx.x) * kValues;
  constexpr int64_t kStep = int64_t{kThreads} * kValues;
  uint32_t words[kRounds];
  float scales[kRounds];
  CU_UNROLL
  for (int r = 0; r < kRounds; ++r) {  // all loads before the first use
    const int64_t i = first + r * kStep;
    if (i >= n) break;
    scales[r] = nf4_scale(i / WeightView::kBlock, absmax, absmax_q, nested_absmax, nested_code, nested_offset);
    if (aligned && i + kValues <= n) words[r] = __ldg(reinterpret_cast<const unsigned*>(codes + i / 2));
  }
  CU_UNROLL
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = first + r * kStep;
    if (i >= n) break;
    if (aligned && i + kValues <= n) {
      float v[kValues];
      CU_UNROLL
      for (int j = 0; j < kValues; j += 2) {  // a byte is two values, the high nibble first
        v[j] = table[words[r] >> (4 * j + 4) & 15] * scales[r];
        v[j + 1] = table[words[r] >> (4 * j) & 15] * scales[r];
      }
      store8(out + i, v);
    } else {
      for (int64_t j = i; j < n && j < i + kValues; ++j) {
        const uint32_t byte = codes[j / 2];
        store(out + j, table[j % 2 ? byte & 15 : byte >> 4] * scales[r]);
      }
    }
  }
}

void decode_nf4(const WeightView& w, DType t, void* out, cudaStream_t on) {
  const int64_t n = w.rows * w.cols;
  const auto* codes = static_cast<const uint8_t*>(w.data);
  with_float_type(t, [&]<class T>() {
    launch_on(on, nf4_dequantize_kernel<T>, blocks_for(n, int64_t{kThreads} * kValues * kRounds), kThreads, 0, codes,
              w.absmax, w.absmax_q, w.nested_absmax, w.nested_code, w.nested_offset, static_cast<T*>(out), n,
              reinterpret_cast<uintptr_t>(codes) % 4 == 0);
  });
}

struct Slot {
  char* at = nullptr;
  size_t bytes = 0;
  const char* codes = nullptr;  // what it holds; null: nothing
  int64_t elements = 0;
  DType type{};
  uint64_t used = 0;     // when a product last asked for it
  bool ahead = false;    // prefetched, and no product has asked for it yet
  bool pending = false;  // decoded on the second stream, and stream() has not been told to wait for it
  cudaEvent_t decoded = nullptr;

  bool holds(const WeightView& w, DType t) const {
    return codes && codes == w.data && elements == w.rows * w.cols && type == t;
  }
};

size_t bytes_of(const WeightView& w, DType t) {
  return dense_bytes(w.rows, w.cols, t);
}

class Cache {
 public:
  Cache();
  ~Cache();

  const void* get(const WeightView& w, DType t) {
    if (slots_.empty()) {  // nothing is kept
      grow_single(bytes_of(w, t));
      ++decodes_;
      decode_nf4(w, t, memory_, stream());
      return memory_;
    }
    Slot* s = find(w, t);
    if (!s) {
      s = replaceable(bytes_of(w, t)).slot;
      if (!s)
        throw Error(ErrorCode::internal, str("CUDA: a decoded weight of ", bytes_of(w, t),
                                             " bytes; the largest slot that is reserved has ", slots_.back().bytes));
      wait_for(*s);  // what is still being decoded there comes first; its readers are on stream(), as this decode is
      s->codes = nullptr;
      decode_nf4(w, t, s->at, stream());
      holds(*s, w, t);
    }
    wait_for(*s);
    s->used = ++clock_;
    s->ahead = false;
    return s->at;
  }

  void prefetch(const WeightView& w, DType t) {
    if (slots_.empty()) return;
    Slot* s = find(w, t);
    if (s) {
      s->ahead = true;
      return;
    }
    // The next product's matrix was prefetched before and stays. With one slot of a kind they would chase each other.
    const Replaceable r = replaceable(bytes_of(w, t));
    s = r.slot;
    if (r.of_kind < 2 || (s->codes && s->ahead)) return;
    s->codes = nullptr;
    // All that was launched so far may read the slot, or write the codes.
    cu_check(cudaEventRecord(reached_, stream()), "cudaEventRecord");
    cu_check(cudaStreamWaitEvent(second_, reached_, 0), "cudaStreamWaitEvent");
    decode_nf4(w, t, s->at, second_);
    cu_check(cudaEventRecord(s->decoded, second_), "cudaEventRecord");
    s->pending = true;
    ++ahead_;
    holds(*s, w, t);
    s->ahead = true;
  }

  // Ascending sizes.
  void reserve(std::vector<size_t> sizes) {
    std::sort(sizes.begin(), sizes.end());
    if (std::equal(sizes.begin(), sizes.end(), slots_.begin(), slots_.end(),
                   [](size_t bytes, const Slot& s) { return bytes == s.bytes; }))
      return;
    clear();
    if (sizes.empty()) return;
    size_t sum = 0;
    for (const size_t s : sizes) sum += s;
    allocate_memory(sum);
    cu_check(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), "cudaStreamCreate");
    cu_check(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming), "cudaEventCreate");
    char* at = memory_;
    for (const size_t bytes : sizes) {
      slots_.push_back({.at = at, .bytes = bytes});
      cu_check(cudaEventCreateWithFlags(&slots_.back().decoded, cudaEventDisableTiming), "cudaEventCreate");
      at += bytes;
    }
  }

  void forget(const char* p, size_t bytes) {
    for (Slot& s : slots_)
      if (s.codes && s.codes < p + bytes && p < s.codes + (s.elements + 1) / 2) s.codes = nullptr;
  }
  size_t decodes(bool ahead) const { return ahead ? ahead_ : decodes_; }

 private:
  Slot* find(const WeightView& w, DType t) {
    const auto it = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.holds(w, t); });
    return it == slots_.end() ? nullptr : &*it;
  }
  struct Replaceable {
    Slot* slot;
    int of_kind;
  };
  // Of the smallest kind of slot that is large enough: an empty one, else the least recently used, those that are still
  // to be read last; and how many there are.
  Replaceable replaceable(size_t bytes) {
    Replaceable r{nullptr, 0};
    const auto rank = [](const Slot& s) {
      return s.codes ? std::tuple(1 + s.ahead, s.used) : std::tuple(0, uint64_t{0});
    };
    for (Slot& s : slots_) {
      if (s.bytes < bytes) continue;
      if (r.slot && s.bytes > r.slot->bytes) break;
      ++r.of_kind;
      if (!r.slot || rank(s) < rank(*r.slot)) r.slot = &s;
    }
    return r;
  }
  void wait_for(Slot& s) {
    if (!s.pending) return;
    cu_check(cudaStreamWaitEvent(stream(), s.decoded, 0), "cudaStreamWaitEvent");
    s.pending = false;
  }
  void holds(Slot& s, const WeightView& w, DType t) {
    ++decodes_;
    s.codes = static_cast<const char*>(w.data);
    s.elements = w.rows * w.cols;
    s.type = t;
  }
  void grow_single(size_t bytes) {
    if (bytes <= bytes_) return;
    clear();
    allocate_memory(bytes);
  }
  void allocate_memory(size_t bytes) {
    memory_ = static_cast<char*>(allocate_raw(bytes));
    if (!memory_)
      throw Error(ErrorCode::does_not_fit, str("CUDA: no room for ", bytes, " bytes of decoded weights"),
                  "use a smaller micro-batch");
    bytes_ = bytes;
  }
  // Errors are left to the next call: at the end of a thread nobody hears of them.
  void clear() {
    if (memory_) {
      static_cast<void>(cudaStreamSynchronize(stream()));
      if (second_) static_cast<void>(cudaStreamSynchronize(second_));
      release_raw(memory_);
    }
    for (const Slot& s : slots_)
      if (s.decoded) static_cast<void>(cudaEventDestroy(s.decoded));
    if (reached_) static_cast<void>(cudaEventDestroy(reached_));
    if (second_) static_cast<void>(cudaStreamDestroy(second_));
    slots_.clear();
    memory_ = nullptr;
    reached_ = nullptr;
    second_ = nullptr;
    bytes_ = 0;
  }

  std::vector<Slot> slots_;  // ascending sizes
  char* memory_ = nullptr;
  size_t bytes_ = 0, decodes_ = 0, ahead_ = 0;
  uint64_t clock_ = 0;
  cudaStream_t second_ = nullptr;
  cudaEvent_t reached_ = nullptr;
};

// Every thread has its own slots; memory that one thread frees may be known to another. Never destroyed, as threads end
// after static objects.
struct Caches {
  std::mutex mutex;
  std::vector<Cache*> all;
};
Caches& caches() {
  static auto* c = new Caches;
  return *c;
}
Cache::Cache() {
  const std::lock_guard lock(caches().mutex);
  caches().all.push_back(this);
}
Cache::~Cache() {
  const std::lock_guard lock(caches().mutex);
  std::erase(caches().all, this);
  clear();
}
Cache& cache() {
  thread_local Cache c;
  return c;
}

}  // namespace

const void* decoded_weight(const WeightView& w, DType t) {
  Cache& c = cache();
  const std::lock_guard lock(caches().mutex);
  return c.get(w, t);
}

void prefetch_weight(Context&, const WeightView& w, Math math) {
  if (w.format != WeightFormat::nf4) return;
  Cache& c = cache();
  const std::lock_guard lock(caches().mutex);
  c.prefetch(w, math == Math::bf16 ? DType::bf16 : DType::f32);
}

void reserve_decoded_weights(const size_t* slots, size_t count) {
  Cache& c = cache();
  const std::lock_guard lock(caches().mutex);
  c.reserve({slots, slots + count});
}

size_t weights_decoded(bool ahead) {
  Cache& c = cache();
  const std::lock_guard lock(caches().mutex);
  return c.decodes(ahead);
}

void forget_decoded(const void* p, size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(caches().mutex);
  for (Cache* c : caches().all) c->forget(static_cast<const char*>(p), bytes);
}

}  // namespace bantam::cuda
