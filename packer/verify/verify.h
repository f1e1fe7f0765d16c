#ifndef GLYD_PACKER_VERIFY_VERIFY_H_
#define GLYD_PACKER_VERIFY_VERIFY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/progress.h"
#include "packer/model/save.h"

namespace glyd {

struct TensorVerdict {
  std::string name;
  std::string file;  // that holds it (a pack's: of its data)
  absl::Status status;
};

struct VerifyReport {
  std::string format, layout;
  uint64_t packs = 0, tensors = 0, bytes = 0;  // tensors: of the source
  std::vector<TensorVerdict> verdicts;         // in the save's order; empty where quick
  std::vector<std::string> notes;
};

struct VerifyOptions {
  bool quick = false;  // structure alone: nothing is decoded or hashed
  int threads = 0;     // 0: one a core that this process may use
};

// Every tensor of an open save against its sha256. The report holds a verdict a tensor; the status
// is the first bad one (DataLoss), also where the report is filled.
absl::Status VerifySave(const Save& save, const VerifyOptions& options, Progress& progress,
                        VerifyReport* report);

}  // namespace glyd

#endif  // GLYD_PACKER_VERIFY_VERIFY_H_
