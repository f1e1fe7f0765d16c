#ifndef GLYD_PACKER_PACK_MODEL_PACKER_H_
#define GLYD_PACKER_PACK_MODEL_PACKER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/progress.h"
#include "base/unique_fd.h"
#include "kernels/format/pack.h"
#include "packer/internal/parallel.h"
#include "packer/model/manifest.h"
#include "packer/model/plan.h"
#include "packer/pack/source_reader.h"
#include "packer/pack/staging.h"
#include "packer/safetensors/writer.h"

namespace glyd {

// Packs the items of a plan into safetensors files. A file's header, and with it every place in the
// file, is known only once the size of each pack is: Measure reads the matrices and finds their
// codes and sizes, Write reads them again, hashes, packs and writes. Packs that fit a fixed amount
// of memory are kept between the two and read once.
class ModelPacker {
 public:
  // All are borrowed.
  ModelPacker(const SavePlan& plan, const Checkpoint& checkpoint, Layout layout, int threads,
              uint64_t shard_bytes, Progress& progress);

  absl::Status Measure();
  // After Measure: the files to come and the tensors in them, in the save's order.
  const std::vector<PlannedFile>& files() const { return files_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  uint64_t file_bytes() const;
  // Creates the files, writes and syncs them.
  absl::Status Write(Staging& staging);
  // After Write: glyd.json's packs and tensors.
  void FillManifest(Manifest* manifest) const;

 private:
  // What is known of an item so far.
  struct State {
    PackMeta meta;
    std::vector<Digest> sha256;  // of its members
    uint64_t side_bytes = 0;     // of a pack
    size_t first = 0;            // of its tensors in tensors_
    std::unique_ptr<EncodedPack> kept;
  };

  absl::Status MeasurePack(Scratch& scratch, size_t item);
  // The members' rows, one below the other, in `weights`.
  absl::Status ReadRows(const PlanItem& item, uint8_t* weights, State* hashes,
                        ExponentHistogram* histogram) const;
  bool Keep(uint64_t bytes);
  void PlaceTensors();
  absl::Status WriteItem(Scratch& scratch, size_t item);
  absl::Status WritePack(Scratch& scratch, size_t item);
  absl::Status WriteRaw(Scratch& scratch, size_t item);
  absl::Status Put(const StoredTensor& tensor, const void* data, uint64_t bytes, uint64_t at) const;

  const SavePlan& plan_;
  const Checkpoint& checkpoint_;
  const Layout layout_;
  const int threads_;
  const uint64_t shard_bytes_;
  Progress& progress_;
  const SourceReader reader_;
  ByteBudget memory_;
  std::vector<Scratch> scratch_;  // by worker
  std::vector<State> states_;     // by item
  std::vector<size_t> by_size_;   // items, the largest first
  std::vector<StoredTensor> tensors_;
  std::vector<PlannedFile> files_;
  std::vector<UniqueFd> fds_;  // by file
  std::vector<std::string> shown_;

  absl::Mutex kept_mutex_;
  uint64_t kept_bytes_ ABSL_GUARDED_BY(kept_mutex_) = 0;
};

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_MODEL_PACKER_H_
