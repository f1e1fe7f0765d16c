#include <chrono>

#include "tests/fakecuda/fake.h"

using namespace fakecuda;

namespace {

double NowMs() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

CUstream_st* Named(Stream s) { return s == nullptr ? &S().null_stream : s; }
bool Known(Stream s) { return s == nullptr || S().streams.count(s) > 0; }

Result WaitFor(const CUevent_st& e) {
  return e.stream == nullptr ? S().sticky : RunUntil(e.stream, e.after);
}

}  // namespace

extern "C" {

Result cuStreamCreate(Stream* out, unsigned flags) {
  FAKE_ENTER("cuStreamCreate", true);
  if ((flags & ~kStreamNonBlocking) != 0) return kInvalidValue;
  auto* s = new CUstream_st;
  s->context = Current();
  s->blocking = (flags & kStreamNonBlocking) == 0;
  S().streams[s] = s->blocking;
  *out = s;
  return kSuccess;
}

Result cuStreamDestroy_v2(Stream s) {
  FAKE_ENTER("cuStreamDestroy", true);
  if (s == nullptr || !Known(s)) {
    Log("broken rule: cuStreamDestroy of no stream");
    return kInvalidHandle;
  }
  RunUntil(s, s->queued);
  for (auto& [e, ours] : S().events)
    if (e->stream == s) e->stream = nullptr;  // reached
  S().streams.erase(s);
  delete s;
  return kSuccess;
}

Result cuStreamSynchronize(Stream s) {
  FAKE_ENTER("cuStreamSynchronize", true);
  if (!Known(s)) return kInvalidHandle;
  return RunUntil(Named(s), Named(s)->queued);
}

Result cuStreamWaitEvent(Stream s, Event e, unsigned flags) {
  FAKE_ENTER("cuStreamWaitEvent", true);
  if (flags != 0) return kInvalidValue;
  if (!Known(s) || S().events.count(e) == 0) return kInvalidHandle;
  if (e->stream == nullptr) return kSuccess;
  CUstream_st* other = e->stream;
  const uint64_t after = e->after;
  return Enqueue(s, [other, after] {
    const bool there = other == &S().null_stream || S().streams.count(other) > 0;
    return there ? RunUntil(other, after) : kSuccess;
  });
}

Result cuEventCreate(Event* out, unsigned flags) {
  FAKE_ENTER("cuEventCreate", true);
  if ((flags & ~3u) != 0) return kInvalidValue;
  auto* e = new CUevent_st;
  e->context = Current();
  e->timed = (flags & kEventDisableTiming) == 0;
  S().events[e] = true;
  *out = e;
  return kSuccess;
}

Result cuEventDestroy_v2(Event e) {
  FAKE_ENTER("cuEventDestroy", true);
  if (S().events.erase(e) == 0) return kInvalidHandle;
  delete e;
  return kSuccess;
}

Result cuEventRecord(Event e, Stream s) {
  FAKE_ENTER("cuEventRecord", true);
  if (S().events.count(e) == 0 || !Known(s)) return kInvalidHandle;
  if (e->context != Current()) {
    Log("broken rule: an event of another context");
    return kInvalidHandle;
  }
  if (const Result r = Enqueue(s, [ms = e->ms] { return *ms = NowMs(), kSuccess; }); r != kSuccess)
    return r;
  e->stream = Named(s);
  e->after = Named(s)->queued;
  return kSuccess;
}

Result cuEventSynchronize(Event e) {
  FAKE_ENTER("cuEventSynchronize", true);
  if (S().events.count(e) == 0) return kInvalidHandle;
  return WaitFor(*e);
}

Result cuEventQuery(Event e) {
  FAKE_ENTER("cuEventQuery", true);
  if (S().events.count(e) == 0) return kInvalidHandle;
  if (e->stream == nullptr || e->stream->done >= e->after) return S().sticky;
  // A step each time: who asks again and again gets there.
  if (const Result r = RunUntil(e->stream, e->stream->done + 1); r != kSuccess) return r;
  return kNotReady;
}

Result cuEventElapsedTime(float* ms, Event from, Event to) {
  FAKE_ENTER("cuEventElapsedTime", true);
  if (S().events.count(from) == 0 || S().events.count(to) == 0 || !from->timed || !to->timed)
    return kInvalidHandle;
  for (const Event e : {from, to}) {
    if (e->after == 0) return kInvalidHandle;  // never recorded
    if (e->stream != nullptr && e->stream->done < e->after) return kNotReady;
  }
  *ms = static_cast<float>(*to->ms - *from->ms);
  return kSuccess;
}

}  // extern "C"
