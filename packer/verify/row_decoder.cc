#include "packer/verify/row_decoder.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "kernels/format/step.h"

namespace glyd {
namespace {

// Where a pack's first step has its part of `side`, in elements of `base`; what follows the last
// one's, in bytes.
uint64_t FirstBase(Layout layout) { return layout == Layout::kMma ? kMmaHeadBytes : 0; }
uint64_t TailBytes(Layout layout) { return layout == Layout::kMma ? kMmaTailBytes : 0; }
uint64_t BaseUnit(Layout layout) { return layout == Layout::kMma ? 1 : sizeof(int32_t); }

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::DataLossError(absl::StrCat(args...));
}

}  // namespace

RowDecoder::RowDecoder(const SavedPack& pack, const TensorReader& reader, JobMemory* memory)
    : pack_(pack), reader_(reader), memory_(*memory) {}

absl::Status RowDecoder::Open() {
  // Save::Open has seen to it that base has an element a step and one more, and data its bytes.
  base_.resize(pack_.base.bytes / sizeof(int32_t));
  GLYD_RETURN_IF_ERROR(reader_.Read(pack_.base, 0, pack_.base.bytes, base_.data()));
  const Layout layout = pack_.meta.layout;
  const bool mma = layout == Layout::kMma;
  const char* const base = mma ? "glyd_block_base" : "glyd_exc_base";
  const char* const side = mma ? "glyd_blocks" : "glyd_exc";
  if (base_.front() != static_cast<int32_t>(FirstBase(layout)))
    return Bad(base, " starts at ", base_.front(), ", ", FirstBase(layout), " expected");
  if (base_.back() < base_.front())
    return Bad(base, " falls from ", base_.front(), " to ", base_.back());
  const uint64_t end = static_cast<uint64_t>(base_.back()) * BaseUnit(layout);
  if (mma && pack_.side.bytes != end + kMmaTailBytes)
    return Bad(side, " has ", pack_.side.bytes, " bytes, ", base, " ends at ", end, " and ",
               kMmaTailBytes, " follow");
  if (!mma && (pack_.side.bytes % 16 != 0 || pack_.side.bytes < end))
    return Bad(side, " has ", pack_.side.bytes / 4, " elements, which are no multiple of 4 of the ",
               base_.back(), " and more that ", base, " takes");
  return absl::OkStatus();
}

absl::Status RowDecoder::Next(uint64_t rows, uint16_t* out) {
  const Layout layout = pack_.meta.layout;
  const uint64_t unit = BaseUnit(layout), head = FirstBase(layout) * unit;
  PackMeta meta = pack_.meta;
  meta.rows = rows;
  const uint64_t steps = StepCount(meta), first = row_ / kStepRows * (meta.cols / kStepCols);
  const std::string where = absl::StrCat(" (in rows ", row_, " to ", row_ + rows - 1, ")");
  const int32_t from = base_[first], to = base_[first + steps];
  if (from < base_.front() || to < from || to > base_.back())
    return Bad(layout == Layout::kMma ? "glyd_block_base" : "glyd_exc_base", " goes from ", from,
               " to ", to, ", ends at ", base_.back(), where);
  // The part as a pack of its own: `base` from its start again, `side` between zeros.
  auto* const base = reinterpret_cast<int32_t*>(memory_.base.Get((steps + 1) * sizeof(int32_t)));
  const int64_t shift = int64_t{base_.front()} - from;
  for (uint64_t s = 0; s <= steps; ++s) base[s] = static_cast<int32_t>(base_[first + s] + shift);
  const uint64_t side_bytes = static_cast<uint64_t>(to - from) * unit;
  PackView view;
  view.meta = meta;
  view.base = base;
  view.base_count = steps + 1;
  view.side_bytes = AlignUp(head + side_bytes + TailBytes(layout), layout == Layout::kMma ? 1 : 16);
  uint8_t* const side = memory_.side.Get(std::max<uint64_t>(view.side_bytes, 16));
  std::memset(side, 0, head);
  std::memset(side + head + side_bytes, 0, view.side_bytes - head - side_bytes);
  GLYD_RETURN_IF_ERROR(
      reader_.Read(pack_.side, static_cast<uint64_t>(from) * unit, side_bytes, side + head));
  view.side = side;
  view.data_bytes = DataBytes(meta);
  uint8_t* const data = memory_.data.Get(view.data_bytes);
  // The digits in `data` say how long mma's blocks are; of mma12 nothing there can be wrong.
  if (out != nullptr || layout == Layout::kMma)
    GLYD_RETURN_IF_ERROR(reader_.Read(pack_.data, DataBytes(pack_.meta) / pack_.meta.rows * row_,
                                      view.data_bytes, data));
  view.data = data;
  if (const absl::Status s = CheckPack(view); !s.ok())
    return absl::Status(s.code(), absl::StrCat(s.message(), where));
  if (out != nullptr) DecodeRows(view, 0, rows, out);
  row_ += rows;
  return absl::OkStatus();
}

}  // namespace glyd
