#ifndef GLYD_SERVER_WORKER_RESIDENT_H_
#define GLYD_SERVER_WORKER_RESIDENT_H_

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dir.h"
#include "base/progress.h"
#include "base/sha256.h"
#include "base/unique_fd.h"
#include "glyd/v1/model.pb.h"
#include "kernels/device/device.h"

namespace glyd {

// A model in device memory, as a worker holds it: the block and the table of what lies where in it.
class ResidentModel {
 public:
  // A block and a table that glydd kept from an earlier worker. The table is this project's own,
  // but its memory has been lent: every offset is checked again.
  static absl::StatusOr<std::unique_ptr<ResidentModel>> Import(Device& device, UniqueFd memory,
                                                               UniqueFd table, int threads,
                                                               Progress& progress);

  // Asked once the size is known: may so much be allocated?
  struct Size {
    uint64_t allocation_bytes = 0, packed_bytes = 0;
    std::string manifest_sha256;  // 32 bytes
    std::string files_sha256;     // of each file's device, inode, size and times
  };
  using Ask = std::function<bool(const Size&)>;
  // Reads the save in `dir` into new memory of `device`, with `threads` threads, and in the same
  // pass checks every pack's structure and, if asked, every tensor's sha256. Cancelled where `ask`
  // says no.
  static absl::StatusOr<std::unique_ptr<ResidentModel>> Load(Device& device, const Dir& dir,
                                                             const std::string& label, bool verify,
                                                             int threads, const Ask& ask,
                                                             Progress& progress);

  // Names of tensors whose bytes in memory have another sha256 than the manifest says.
  absl::StatusOr<std::vector<std::string>> Verify(Device& device, int threads,
                                                  Progress& progress) const;

  // NotFound names the model's packs' count.
  absl::StatusOr<PackView> FindPack(const std::string& name) const;
  // The members' biases in the order of the pack's rows, or null where the save holds none; valid
  // while this is. In CPU memory.
  absl::StatusOr<const uint16_t*> FindBias(Device& device, const std::string& pack);

  const glyd::v1::ModelTable& table() const { return table_; }
  const Memory& memory() const { return *memory_; }
  uint64_t tensor_count() const;
  // The table as a sealed memfd, for glydd to lend.
  absl::StatusOr<UniqueFd> ExportTable(uint64_t* bytes) const;

 private:
  ResidentModel() = default;
  // A tensor whose bytes are not the manifest's, with both sha256 in hex.
  struct Mismatch {
    std::string tensor, is, should_be;
  };
  static void Compare(const std::string& tensor, Sha256& hash, const std::string& should_be,
                      std::vector<Mismatch>* bad);

  void Index();
  // Items are the table's packs, then its tensors.
  absl::Status CheckItem(Device& device, size_t item, bool verify) const;
  absl::Status HashItem(Device& device, size_t item, std::vector<Mismatch>* bad) const;
  absl::Status HashPack(Device& device, const glyd::v1::Pack& pack,
                        std::vector<Mismatch>* bad) const;
  absl::Status HashTensor(Device& device, const glyd::v1::Tensor& tensor,
                          std::vector<Mismatch>* bad) const;
  // Of device memory.
  PackView View(const glyd::v1::Pack& pack) const;
  absl::Status CheckBytes(Device& device, const glyd::v1::Pack& pack) const;

  std::unique_ptr<Memory> memory_;
  glyd::v1::ModelTable table_;
  std::unordered_map<std::string, int> packs_, tensors_;
  std::unordered_map<std::string, std::vector<uint16_t>> biases_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_WORKER_RESIDENT_H_
