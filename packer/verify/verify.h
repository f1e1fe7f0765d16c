#ifndef GLYD_PACKER_VERIFY_VERIFY_H_
#define GLYD_PACKER_VERIFY_VERIFY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/dir.h"
#include "base/progress.h"
#include "packer/model/save.h"

namespace glyd {

// How far a tensor was looked at.
enum class Checked {
  kNothing,    // the save's structure is bad, elsewhere or in a way that names no tensor
  kStructure,  // its bytes were not hashed: by wish, or for want of a sha256 in glyd.json
  kHashed,
};

struct TensorVerdict {
  std::string name;
  std::string file;  // that holds it (a pack's: of its data); empty where that is not known
  absl::Status status;
  Checked checked = Checked::kHashed;
};

struct VerifyReport {
  std::string format, layout;
  uint64_t packs = 0, tensors = 0, bytes = 0;  // tensors: of the source
  std::vector<TensorVerdict> verdicts;         // in the save's order
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

// Save::Open and VerifySave. Where the save does not open the report has a verdict for each tensor
// that glyd.json, or else its files, can still be seen to name; one that the failure names has its
// status, the others FailedPrecondition.
absl::Status VerifyDir(const Dir& dir, const VerifyOptions& options, Progress& progress,
                       VerifyReport* report);

}  // namespace glyd

#endif  // GLYD_PACKER_VERIFY_VERIFY_H_
