#ifndef GLYD_KERNELS_DEVICE_CUDA_DRIVER_H_
#define GLYD_KERNELS_DEVICE_CUDA_DRIVER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/cuda/driver_table.h"

namespace glyd::cu {

// Driver::Open as a Status: NotFound where there is no driver or no GPU, FailedPrecondition where
// there is one that does not start, or lacks a function that is needed; both say why.
absl::StatusOr<const Driver*> GetDriver();

// OK for kSuccess. Else `what` with the driver's own name and number of the error, of a code by
// what a caller does next: ResourceExhausted (no memory), InvalidArgument, NotFound (no such device
// or function), Unimplemented (not on this GPU), FailedPrecondition (the driver's or a context's
// state), and, for an error after which the context answers nothing else, Unavailable with reason
// DEVICE_LOST: only a new process helps.
absl::Status ToStatus(Result result, absl::string_view what);

bool IsSticky(Result result);
// Of a status that ToStatus made.
bool IsSticky(const absl::Status& status);

// "GPU-2b6d5b2c-..." as nvidia-smi prints it.
std::string UuidText(const Uuid& uuid);

// Makes `context` current in this thread for as long as it lives. No context outlives its
// ScopedContext in a thread's stack: what was current before is current again.
class ScopedContext {
 public:
  ScopedContext(const Driver& driver, Context context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const Driver& driver_;
  absl::Status status_;
};

}  // namespace glyd::cu

// Returns, as a Status, from a function that has `const cu::Driver& cu`: GLYD_CU(MemFree(p),
// "freeing").
#define GLYD_CU(call, what) GLYD_RETURN_IF_ERROR(::glyd::cu::ToStatus(cu.call, what))

#endif  // GLYD_KERNELS_DEVICE_CUDA_DRIVER_H_
