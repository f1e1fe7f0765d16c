#ifndef GLYD_PACKER_PACK_MODEL_PACKER_H_
#define GLYD_PACKER_PACK_MODEL_PACKER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/progress.h"
#include "base/sha256.h"
#include "kernels/format/pack.h"
#include "packer/internal/hash_jobs.h"
#include "packer/model/manifest.h"
#include "packer/model/plan.h"
#include "packer/pack/staging.h"
#include "packer/safetensors/tensor_reader.h"
#include "packer/safetensors/writer.h"

namespace glyd {

// Packs the items of a plan into safetensors files. A file's header, and with it every place in the
// file, is known only once the size of each pack is: Measure reads the matrices and finds their
// codes and sizes; Write reads them again and hashes, packs and writes each piece while it is in
// cache. To read once and move what was written to its place would cost a copy of the save, more
// than the second read. Neither holds more of a matrix in memory than a row block.
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
  class PackJob;
  class RawJob;
  // What is known of an item so far.
  struct State {
    PackMeta meta;
    uint64_t side_bytes = 0;     // of a pack
    size_t first = 0;            // of its tensors in tensors_
    std::vector<Digest> sha256;  // of its members
  };

  // Whether Measure keeps the matrix in memory between its two looks at it.
  bool IsHeld(const PlanItem& item, int workers) const;
  absl::Status MeasurePack(size_t item, bool hold, JobMemory& memory);
  void PlaceTensors();

  const SavePlan& plan_;
  const Checkpoint& checkpoint_;
  const Layout layout_;
  const int threads_;
  const uint64_t shard_bytes_;
  Progress& progress_;
  const TensorReader reader_;
  std::vector<State> states_;    // by item
  std::vector<size_t> by_size_;  // items, the largest first: threads end at about the same time
  std::vector<StoredTensor> tensors_;
  std::vector<PlannedFile> files_;
};

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_MODEL_PACKER_H_
