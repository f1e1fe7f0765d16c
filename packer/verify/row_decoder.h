#ifndef GLYD_PACKER_VERIFY_ROW_DECODER_H_
#define GLYD_PACKER_VERIFY_ROW_DECODER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/format/pack.h"
#include "packer/internal/hash_jobs.h"
#include "packer/internal/parts.h"
#include "packer/model/save.h"
#include "packer/safetensors/tensor_reader.h"

namespace glyd {

// Checks and decodes a pack part by part, reading no more of it. Each part is checked as a pack of
// its own before it is decoded; together that is what CheckPack checks of the whole.
class RowDecoder {
 public:
  // All are borrowed; `memory` may be another decoder's before.
  RowDecoder(const SavedPack& pack, const TensorReader& reader, JobMemory* memory);

  // Reads `base` and checks what concerns the pack as a whole. DataLoss names the buffer.
  absl::Status Open();
  // The next `rows`, a multiple of 64, into out [rows, K]; nullptr: they are checked alone.
  // DataLoss names the buffer and the rows.
  absl::Status Next(uint64_t rows, uint16_t* out);

 private:
  const SavedPack& pack_;
  const TensorReader& reader_;
  JobMemory& memory_;
  absl::Status Part(const MatrixPart& part, uint16_t* out);
  // Bytes of `side` that code nothing.
  absl::Status CheckZeros(uint64_t at, uint64_t bytes, absl::string_view side);

  std::vector<int32_t> base_;
  uint64_t row_ = 0, step_ = 0;  // that come next
};

}  // namespace glyd

#endif  // GLYD_PACKER_VERIFY_ROW_DECODER_H_
