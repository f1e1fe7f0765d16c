#include "kernels/device/cuda/pack_copy.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace glyd {

absl::StatusOr<EncodedPack> CopyPackRows(const PackView& pack, uint64_t row0, uint64_t rows,
                                         const ReadDevice& read) {
  EncodedPack out;
  out.meta = pack.meta;
  out.meta.rows = rows;
  const bool mma = pack.meta.layout == Layout::kMma;
  const uint64_t steps = StepCount(out.meta);
  const uint64_t first = row0 / kStepRows * (pack.meta.cols / kStepCols);
  out.base.resize(steps + 1);
  GLYD_RETURN_IF_ERROR(read(pack.base + first, out.base.data(), out.base.size() * sizeof(int32_t)));
  // `base` counts bytes of blocks from 128 on (mma), or exceptions of 4 bytes from 0.
  const uint64_t unit = mma ? 1 : sizeof(int32_t), head = mma ? kMmaHeadBytes : 0;
  const int64_t from = out.base.front(), count = out.base.back() - from;
  const uint64_t end = static_cast<uint64_t>(from + count) * unit;
  if (from < 0 || count < 0 || end > pack.side_bytes)
    return absl::DataLossError(absl::StrCat("rows ", row0, " to ", row0 + rows, " go from ", from,
                                            " to ", from + count, " of ", pack.side_bytes,
                                            " bytes"));
  const uint64_t tail =
      mma ? kMmaTailBytes
          : (AlignUp(static_cast<uint64_t>(count) + 1, 4) - static_cast<uint64_t>(count)) * unit;
  out.side.assign(head + static_cast<uint64_t>(count) * unit + tail, 0);
  GLYD_RETURN_IF_ERROR(read(pack.side + static_cast<uint64_t>(from) * unit, out.side.data() + head,
                            static_cast<uint64_t>(count) * unit));
  for (int32_t& b : out.base) b = static_cast<int32_t>(b - from + static_cast<int64_t>(head));
  out.data.resize(DataBytes(out.meta));
  GLYD_RETURN_IF_ERROR(
      read(pack.data + out.data.size() / steps * first, out.data.data(), out.data.size()));
  return out;
}

}  // namespace glyd
