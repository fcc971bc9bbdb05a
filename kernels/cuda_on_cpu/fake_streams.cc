// SPDX-License-Identifier: Apache-2.0
// The fake runtime's streams and events: queues of work, done at once or, with COC_DEFER=1, when something waits for
// it.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "fake_cudart.h"

struct EventState {
  uint64_t recorded = 0, done = 0;  // number of the latest record, and of the latest that the stream has reached
  CUstream_st* in = nullptr;        // where it was last recorded
  std::chrono::steady_clock::time_point time;
};
struct CUevent_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();  // outlives the event in the queues
};
struct StreamItem {
  std::function<void()> work;
  // Or, where this is set: nothing after it runs before the event's record `version` in stream `in` is done.
  std::shared_ptr<EventState> wait;
  uint64_t version = 0;
  CUstream_st* in = nullptr;
};
struct CUstream_st {
  std::deque<StreamItem> queue;
  bool blocked() const {
    return !queue.empty() && queue.front().wait && queue.front().wait->done < queue.front().version;
  }
};
namespace coc {
unsigned long sync_count;

namespace {
bool defer;
int not_ready;                                      // answers of cudaEventQuery in a row
enum { kLate, kEarly, kAny } stream_order = kLate;  // when the work of other streams than the one asked for is done
uint64_t random_state = 1;
CUstream_st null_stream;
CUevent_st* real(cudaEvent_t e) {
  auto& all = registry<CUevent_st*>();
  if (std::find(all.begin(), all.end(), e) == all.end()) fail("", 0, "use of a destroyed or foreign cudaEvent_t");
  return e;
}
CUstream_st* real(cudaStream_t s) {
  if (!s) return &null_stream;
  auto& all = registry<CUstream_st*>();
  if (std::find(all.begin(), all.end(), s) == all.end()) fail("", 0, "use of a destroyed or foreign cudaStream_t");
  return s;
}
// The stream that takes a step so that `target` comes further. What no event orders may run in any order, so one is
// chosen in which a missing wait shows: streams that nobody asked for run as late as possible, or as early, or at
// random.
CUstream_st* next_stream(CUstream_st* target) {
  CUstream_st* needed = target;
  while (needed->blocked()) needed = needed->queue.front().in;
  if (stream_order == kLate) return needed;
  std::vector<CUstream_st*> ready;
  const auto look = [&](CUstream_st* s) {
    if (!s->queue.empty() && !s->blocked()) ready.push_back(s);
  };
  look(&null_stream);
  for (auto* s : registry<CUstream_st*>()) look(s);
  if (stream_order == kAny) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return ready[(random_state >> 33) % ready.size()];
  }
  for (auto* s : ready)
    if (s != target) return s;
  return needed;
}
void step(CUstream_st* s) {
  CUstream_st* const next = next_stream(s);
  const StreamItem item = std::move(next->queue.front());
  next->queue.pop_front();
  if (item.work) item.work();
}
void drain(CUstream_st* s) {
  while (!s->queue.empty()) step(s);
}
}  // namespace

void init_streams() {
  defer = flag("COC_DEFER");
  if (const char* e = getenv("COC_SCHED")) {
    if (strncmp(e, "rev", 3) == 0) stream_order = kEarly;
    if (strncmp(e, "rand", 4) == 0) {
      stream_order = kAny;
      random_state += e[4] == ':' ? strtoull(e + 5, nullptr, 10) : 0;
    }
  }
}
void drain_all() {
  drain(&null_stream);
  for (auto* s : registry<CUstream_st*>()) drain(s);
}
void enqueue(cudaStream_t stream, std::function<void()> work) {
  CUstream_st* s = real(stream);
  not_ready = 0;
  s->queue.push_back({.work = std::move(work)});
  if (!defer) drain(s);
}
}  // namespace coc

using namespace coc;

/// For tests, found with dlsym: how many calls so far waited for the device, or might have on a real one.
extern "C" __attribute__((visibility("default"))) unsigned long coc_sync_count() {
  return sync_count;
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  ENTER(cudaStreamCreateWithFlags);
  registry<CUstream_st*>().push_back(*s = new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  ENTER(cudaStreamSynchronize);
  ++sync_count;
  drain(real(s));
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  ENTER(cudaStreamDestroy);
  ++sync_count;
  drain(real(s));
  std::erase(registry<CUstream_st*>(), s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  ENTER(cudaEventCreateWithFlags);
  registry<CUevent_st*>().push_back(*e = new CUevent_st);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  ENTER(cudaEventDestroy);
  std::erase(registry<CUevent_st*>(), real(e));
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  ENTER(cudaEventRecord);
  const auto state = real(e)->state;
  const uint64_t version = ++state->recorded;
  state->in = real(s);
  enqueue(s, [=] {
    state->done = std::max(state->done, version);
    state->time = std::chrono::steady_clock::now();
  });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  ENTER(cudaStreamWaitEvent);
  const auto state = real(e)->state;
  if (state->recorded == 0) fail("", 0, "cudaStreamWaitEvent: the event was never recorded, so nothing would wait");
  real(s)->queue.push_back({.wait = state, .version = state->recorded, .in = state->in});
  if (!defer) drain(real(s));
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  ENTER(cudaDeviceSynchronize);
  ++sync_count;
  drain_all();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  ENTER(cudaEventQuery);
  // Time passes for who asks again and again: the device goes on, a step each time.
  constexpr int kPatience = 32;
  const auto state = real(e)->state;
  if (state->done < state->recorded && ++not_ready > kPatience) step(state->in);
  if (state->done < state->recorded) return set_error(cudaErrorNotReady);
  not_ready = 0;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  ENTER(cudaEventSynchronize);
  ++sync_count;
  const auto state = real(e)->state;
  while (state->done < state->recorded) step(state->in);  // and no further
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  ENTER(cudaEventElapsedTime);
  for (const cudaEvent_t e : {a, b}) {
    if (real(e)->state->recorded == 0) return set_error(cudaErrorInvalidResourceHandle);
    if (e->state->done < e->state->recorded) return set_error(cudaErrorNotReady);
  }
  *ms = std::chrono::duration<float, std::milli>(b->state->time - a->state->time).count();
  return cudaSuccess;
}

}  // extern "C"
