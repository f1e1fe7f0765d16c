#ifndef GLYD_CLIENT_SRC_TABLE_H_
#define GLYD_CLIENT_SRC_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "glyd/model.h"
#include "kernels/format/pack.h"

namespace glyd::v1 {
class ModelTable;
}

namespace glyd::internal {

// A pack in mapped memory, whose bytes are checked (CheckPack) once, before the first decode or
// product: a daemon that is wrong must not be able to crash its clients. Thread-safe.
class CheckedPack {
 public:
  explicit CheckedPack(PackView view) : view_(view) {}
  const PackView& view() const { return view_; }
  // The check's verdict, reached by the first call; others wait for it.
  absl::Status Check();

 private:
  const PackView view_;
  absl::Mutex mutex_;
  bool checked_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status verdict_ ABSL_GUARDED_BY(mutex_);
};

// Where a tensor of the source is.
struct TensorPlace {
  static constexpr size_t kRaw = SIZE_MAX;
  size_t pack = kRaw;  // index into packs; kRaw: saved as it is
  size_t index = 0;    // of the pack's member, or into tensors
};

// A model's table over its mapped memory.
struct Table {
  std::vector<ModelPack> packs;
  std::vector<ModelTensor> tensors;
  absl::flat_hash_map<std::string, TensorPlace> places;  // by a source tensor's name
};

// The views that `table` describes in `memory`. Every offset, size, shape and name is checked
// against the others and the memory first; DataLoss names the pack or tensor and both numbers.
// Bytes of packs are not looked at.
absl::StatusOr<Table> MakeTable(const v1::ModelTable& table, absl::Span<const uint8_t> memory);

}  // namespace glyd::internal

#endif  // GLYD_CLIENT_SRC_TABLE_H_
