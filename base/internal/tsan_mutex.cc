// ThreadSanitizer sees a lock only in code that was compiled for it, and the system's Abseil was
// not: without this, everything that an absl::Mutex guards looks like a race. These stand before
// the library's own functions, call them and tell. In builds with -fsanitize=thread alone.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"

// gRPC, Protobuf and OpenSSL are the system's too: what they read and free, and the order that they
// bring about between threads, is theirs to see to.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1";
}
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libprotobuf.so\n"
         "race_top:^grpc::\n"
         "race:^grpc::internal::CallOp\n"
         "race:^grpc::internal::CallbackWith\n"
         "race:CallOnDone\n"  // what a call owns ends on another of gRPC's threads
         "race:^grpc::ServerContextBase::\n"
         "race:^grpc::internal::InterceptorBatchMethodsImpl::\n";
}

namespace {

// The library's function of a mangled name, as a function of its object.
template <typename F>
F Library(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

// What the library does while it waits, a condition's reads of what the lock guards among it, is
// under the lock but not seen to be: it is ignored, between the two calls.
void Released(void* mutex) { __tsan_mutex_pre_unlock(mutex, 0); }
void Acquired(void* mutex) {
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
  __tsan_mutex_post_lock(mutex, 0, 0);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto library = Library<void (*)(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  __tsan_mutex_pre_lock(this, 0);
  library(this);
  __tsan_mutex_post_lock(this, 0, 0);
}

void Mutex::Unlock() {
  static const auto library = Library<void (*)(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_mutex_pre_unlock(this, 0);
  library(this);
  __tsan_mutex_post_unlock(this, 0);
}

void Mutex::Await(const Condition& condition) {
  static const auto library =
      Library<void (*)(Mutex*, const Condition&)>("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
  Released(this);
  library(this, condition);
  Acquired(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto library = Library<bool (*)(Mutex*, const Condition&, Duration)>(
      "_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  Released(this);
  const bool held = library(this, condition, timeout);
  Acquired(this);
  return held;
}

Mutex::~Mutex() {
  static const auto library = Library<void (*)(Mutex*)>("_ZN4absl7debian35MutexD1Ev");
  __tsan_mutex_destroy(this, 0);
  library(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
