#ifndef GLYD_MODEL_H_
#define GLYD_MODEL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "glyd/info.h"

namespace glyd {

namespace internal {
class AttachedModel;
class CheckedPack;
struct Peek;
}  // namespace internal

// A tensor that was saved as it is. `bytes` is mapped memory, 256-byte aligned.
struct ModelTensor {
  std::string name, dtype;  // "BF16"
  std::vector<uint64_t> shape;
  absl::Span<const uint8_t> bytes;
  std::array<uint8_t, 32> sha256 = {};
};

// A tensor of the source that is rows [row0, row0 + rows) of a pack.
struct ModelPackMember {
  std::string name;
  std::vector<uint64_t> shape;
  uint64_t row0 = 0, rows = 0;
  std::array<uint8_t, 32> sha256 = {};  // of its bf16 bytes
};

// A packed matrix W [rows, cols], its buffers in mapped memory (docs/format.md). Copies are views
// of the same.
struct ModelPack {
  std::string name, layout;  // "mma", "mma12"
  uint64_t rows = 0, cols = 0;
  std::array<uint32_t, 3> tiers = {};    // mma
  uint32_t hb = 0;                       // mma12
  absl::Span<const uint8_t> data, side;  // side: blocks (mma) or exc (mma12)
  absl::Span<const int32_t> base;        // block_base or exc_base
  std::vector<ModelPackMember> members;  // in the order of their rows
  uint64_t experts = 0;                  // 0: not a pack of experts
  bool transposed = false;
  // What decoding and products read: set by Attach, checked once before the first use.
  std::shared_ptr<internal::CheckedPack> checked;
};

// A model that this process holds a lease of, its memory mapped read-only: one copy, shared by
// every process that attached. The tensors and packs are views of that mapping and are valid for
// this object's life. Destruction unmaps and releases the lease (waiting for the daemon's answer up
// to a second); the lease ends with the process in any case.
//
// A daemon that dies leaves the memory valid. Once one is back and has the same model under that
// name (by the sha256 of its glyd.json), a thread of the library leases it anew; the mapping stays
// the one it was. Arenas are not renewed: create them again.
//
// Immutable but for moves: any number of threads may read it at once.
class Model {
 public:
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelInfo& info() const;  // as it was at Attach
  std::string lease_id() const;   // of the lease as it is now
  // OK while the lease is held; Unavailable while it is being renewed; FailedPrecondition, reason
  // OTHER_MODEL, where it is lost, for the daemon that is there now has another model of that name.
  absl::Status lease_status() const;
  uint64_t memory_bytes() const;
  uint64_t memory_inode() const;  // of the mapped memfd

  absl::Span<const ModelTensor> tensors() const;  // in the save's order
  absl::Span<const ModelPack> packs() const;
  // Null where there is none of that name.
  const ModelTensor* FindTensor(absl::string_view name) const;
  const ModelPack* FindPack(absl::string_view name) const;

  // The bytes of a tensor of the source, saved as it is or member of a pack, exactly as the source
  // held them, given to `sink` from front to back in pieces of bounded size. NotFound; DataLoss for
  // a pack that does not decode.
  absl::Status ReadTensor(absl::string_view name,
                          const std::function<void(absl::Span<const uint8_t>)>& sink) const;
  // Names of all tensors of the source: packs' members in order, then those saved as they are.
  std::vector<std::string> TensorNames() const;
  // What the manifest says of one. NotFound.
  absl::StatusOr<std::array<uint8_t, 32>> TensorSha256(absl::string_view name) const;
  // The biases of a pack's members in the order of its rows, bf16. NotFound where the save holds
  // none of them.
  absl::StatusOr<std::vector<uint16_t>> Bias(const ModelPack& pack) const;

  // Ends the lease now and says whether the daemon took it. Every view is invalid from then on.
  absl::Status Release() &&;

 private:
  friend class Client;
  friend struct internal::Peek;
  explicit Model(std::unique_ptr<internal::AttachedModel> attached);

  std::unique_ptr<internal::AttachedModel> attached_;
};

// Rows [row0, row0 + rows) of W as bf16, row-major, into `out` (rows * cols long). row0 and rows
// are multiples of
// 64. InvalidArgument for a range that is not in W; DataLoss for a pack that does not decode.
// Thread-safe.
absl::Status DecodeRows(const ModelPack& pack, uint64_t row0, uint64_t rows,
                        absl::Span<uint16_t> out);

}  // namespace glyd

#endif  // GLYD_MODEL_H_
