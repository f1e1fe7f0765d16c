#ifndef GLYD_PACKER_MODEL_PLAN_H_
#define GLYD_PACKER_MODEL_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/format/pack.h"
#include "packer/model/config.h"
#include "packer/safetensors/checkpoint.h"

namespace glyd {

// The names of a pack's three tensors in the files.
struct BufferNames {
  std::string data, side, base;
};
// `own_weight`: the pack has the name of its one tensor (experts), not of the module that holds
// `weight`.
BufferNames PackBuffers(absl::string_view pack, Layout layout, bool own_weight);

// A Linear's weight that packs, or each matrix of an experts' weight.
bool IsPackable(uint64_t rows, uint64_t cols);

struct PlanMember {
  std::string name;  // as the save calls it
  const StoredTensor* source = nullptr;
};

// A pack, or a tensor that is saved as it is.
struct PlanItem {
  std::string name;  // the pack's or the tensor's
  std::vector<PlanMember>
      members;                  // in the order of their rows; of a tensor saved as it is, itself
  uint64_t rows = 0, cols = 0;  // of a pack
  uint64_t experts = 0;         // of a pack of experts
  bool own_weight = false;      // see PackBuffers

  bool packed() const { return rows != 0; }
};

// What a save of a checkpoint holds, in its order. Points into the checkpoint.
struct SavePlan {
  std::vector<PlanItem> items;
  // An output layer of the checkpoint that is not saved, and the embedding that config.json ties it
  // to; nullptr where there is none.
  const StoredTensor *dropped_head = nullptr, *embedding = nullptr;
  std::vector<std::string> notes;
};

// By the family that config.json names. InvalidArgument: an architecture that is not known (the
// known ones are listed), a tensor that is not BF16, is missing, or that the family does not have.
absl::StatusOr<SavePlan> PlanFamily(const ModelConfig& config, const Checkpoint& checkpoint,
                                    bool merge);

// Of any checkpoint: each BF16 matrix that packs and each 3-D stack of them under its own name,
// everything else as it is, in the checkpoint's order.
absl::StatusOr<SavePlan> PlanAny(const Checkpoint& checkpoint);

}  // namespace glyd

#endif  // GLYD_PACKER_MODEL_PLAN_H_
