#include "packer/verify/row_decoder.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "kernels/format/step.h"

namespace glyd {
namespace {

// Where a pack's first step has its part of `side`, in elements of `base`; the zeros that follow
// the last one's, in bytes, where `elements` precede them.
uint64_t FirstBase(Layout layout) { return layout == Layout::kMma ? kMmaHeadBytes : 0; }
uint64_t TailBytes(Layout layout, uint64_t elements) {
  return layout == Layout::kMma ? kMmaTailBytes
                                : (AlignUp(elements + 1, 4) - elements) * sizeof(int32_t);
}
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
  const uint64_t tail = TailBytes(layout, static_cast<uint64_t>(base_.back()));
  if (pack_.side.bytes != end + tail)
    return Bad(side, " has ", pack_.side.bytes, " bytes, ", base, " ends at ", end, " and ", tail,
               " follow");
  GLYD_RETURN_IF_ERROR(CheckZeros(0, FirstBase(layout), side));
  return CheckZeros(end, tail, side);
}

absl::Status RowDecoder::CheckZeros(uint64_t at, uint64_t bytes, absl::string_view side) {
  uint8_t zeros[std::max(kMmaHeadBytes, kMmaTailBytes)];
  GLYD_RETURN_IF_ERROR(reader_.Read(pack_.side, at, bytes, zeros));
  for (uint64_t i = 0; i < bytes; ++i)
    if (zeros[i] != 0)
      return Bad(side, ": byte ", at + i, " is ", zeros[i],
                 ", zero expected: nothing is coded there");
  return absl::OkStatus();
}

absl::Status RowDecoder::Next(uint64_t rows, uint16_t* out) {
  GLYD_RETURN_IF_ERROR(
      ForEachPart(rows, pack_.meta.cols, [&](const MatrixPart& part) { return Part(part, out); }));
  row_ += rows;
  return absl::OkStatus();
}

absl::Status RowDecoder::Part(const MatrixPart& part, uint16_t* out) {
  const Layout layout = pack_.meta.layout;
  const uint64_t unit = BaseUnit(layout), head = FirstBase(layout) * unit;
  PackMeta meta = pack_.meta;
  meta.rows = part.rows;
  meta.cols = part.cols;
  const uint64_t steps = StepCount(meta), row = row_ + part.row;
  const std::string where = absl::StrCat(" (in rows ", row, " to ", row + part.rows - 1, ")");
  const int32_t from = base_[step_], to = base_[step_ + steps];
  if (from < base_.front() || to < from || to > base_.back())
    return Bad(layout == Layout::kMma ? "glyd_block_base" : "glyd_exc_base", " goes from ", from,
               " to ", to, ", ends at ", base_.back(), where);
  // The part as a pack of its own: `base` from its start again, `side` between zeros.
  auto* const base = reinterpret_cast<int32_t*>(memory_.base.Get((steps + 1) * sizeof(int32_t)));
  const int64_t shift = int64_t{base_.front()} - from;
  for (uint64_t s = 0; s <= steps; ++s) base[s] = static_cast<int32_t>(base_[step_ + s] + shift);
  const uint64_t side_bytes = static_cast<uint64_t>(to - from) * unit;
  PackView view;
  view.meta = meta;
  view.base = base;
  view.base_count = steps + 1;
  view.side_bytes = head + side_bytes + TailBytes(layout, static_cast<uint64_t>(to - from));
  uint8_t* const side = memory_.side.Get(view.side_bytes);
  std::memset(side, 0, head);
  std::memset(side + head + side_bytes, 0, view.side_bytes - head - side_bytes);
  GLYD_RETURN_IF_ERROR(
      reader_.Read(pack_.side, static_cast<uint64_t>(from) * unit, side_bytes, side + head));
  view.side = side;
  view.data_bytes = DataBytes(meta);
  // The digits in `data` say how long mma's blocks are; of mma12 little there can be wrong.
  if (out != nullptr || layout == Layout::kMma) {
    uint8_t* const data = memory_.data.Get(view.data_bytes);
    GLYD_RETURN_IF_ERROR(
        reader_.Read(pack_.data, view.data_bytes / steps * step_, view.data_bytes, data));
    view.data = data;
  }
  if (const absl::Status s = CheckPack(view); !s.ok())
    return absl::Status(s.code(), absl::StrCat(s.message(), where));
  step_ += steps;
  if (out == nullptr) return absl::OkStatus();
  if (part.cols == pack_.meta.cols)
    DecodeRows(view, 0, part.rows, out + part.row * part.cols);
  else
    DecodeSteps(view, 0, steps, out + part.row * pack_.meta.cols + part.col, pack_.meta.cols);
  return absl::OkStatus();
}

}  // namespace glyd
