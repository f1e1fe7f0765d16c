#include "server/worker/operands.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"

namespace glyd {
namespace {

bool IsHost(const Device& device) { return device.info().kind == "host"; }

}  // namespace

absl::StatusOr<Memory*> Operands::Allocate(uint64_t count) {
  GLYD_ASSIGN_OR_RETURN(
      auto block, device_.Allocate(std::max<uint64_t>(count, 1) * sizeof(uint16_t), "a product"));
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

absl::StatusOr<const uint16_t*> Operands::In(const uint16_t* numbers, uint64_t count) {
  if (IsHost(device_)) return numbers;
  GLYD_ASSIGN_OR_RETURN(Memory * block, Allocate(count));
  const auto* bytes = reinterpret_cast<const uint8_t*>(numbers);
  const uint64_t size = count * sizeof(uint16_t);
  for (uint64_t at = 0; at < size; at += Device::kWindowBytes) {
    const uint64_t n = std::min(Device::kWindowBytes, size - at);
    GLYD_ASSIGN_OR_RETURN(uint8_t * window, device_.OpenWindow(*block, at, n));
    std::memcpy(window, bytes + at, n);
    GLYD_RETURN_IF_ERROR(device_.Commit(*block, at, window, n));
  }
  GLYD_RETURN_IF_ERROR(device_.Finish(*block));
  return reinterpret_cast<const uint16_t*>(block->data());
}

absl::StatusOr<uint16_t*> Operands::Out(uint16_t* numbers, uint64_t count) {
  if (IsHost(device_)) return numbers;
  GLYD_ASSIGN_OR_RETURN(Memory * block, Allocate(count));
  results_.push_back({block, numbers, count * sizeof(uint16_t)});
  return reinterpret_cast<uint16_t*>(block->data());
}

absl::Status Operands::Collect() {
  for (const Result& r : results_) GLYD_RETURN_IF_ERROR(device_.CopyOut(*r.from, 0, r.to, r.bytes));
  return absl::OkStatus();
}

absl::StatusOr<PackView> ReadableView(Device& device, const Memory& memory, const PackView& pack,
                                      PackCopy* copy) {
  if (IsHost(device)) return pack;
  const auto read = [&](const void* from, auto* to, uint64_t count) {
    to->resize(count);
    const auto offset = static_cast<uint64_t>(static_cast<const uint8_t*>(from) - memory.data());
    return device.CopyOut(memory, offset, to->data(), count * sizeof(*to->data()));
  };
  GLYD_RETURN_IF_ERROR(read(pack.data, &copy->data, pack.data_bytes));
  GLYD_RETURN_IF_ERROR(read(pack.side, &copy->side, pack.side_bytes));
  GLYD_RETURN_IF_ERROR(read(pack.base, &copy->base, pack.base_count));
  PackView out = pack;
  out.data = copy->data.data();
  out.side = copy->side.data();
  out.base = copy->base.data();
  return out;
}

}  // namespace glyd
