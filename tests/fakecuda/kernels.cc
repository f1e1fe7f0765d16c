#include <chrono>
#include <thread>

#include "tests/fakecuda/fake.h"

// The double's own kernels, for its tests.

namespace {

using fakecuda::DevicePtr;
using fakecuda::kSuccess;
using fakecuda::Result;

template <typename T>
T Value(void* const* parameters, int i) {
  return *static_cast<const T*>(parameters[i]);
}

// fake_fill(to u8*, bytes u64, byte u8)
Result Fill(const unsigned*, const unsigned*, unsigned, void** p) {
  auto* to = reinterpret_cast<volatile uint8_t*>(Value<DevicePtr>(p, 0));
  const uint8_t byte = Value<uint8_t>(p, 2);
  for (uint64_t i = 0; i < Value<uint64_t>(p, 1); ++i) to[i] = byte;
  return kSuccess;
}

// fake_checksum(from u8*, bytes u64, sum u64*): FNV-1a
Result Checksum(const unsigned*, const unsigned*, unsigned, void** p) {
  const auto* from = reinterpret_cast<const volatile uint8_t*>(Value<DevicePtr>(p, 0));
  uint64_t sum = 0xcbf29ce484222325;
  for (uint64_t i = 0; i < Value<uint64_t>(p, 1); ++i) sum = (sum ^ from[i]) * 0x100000001b3;
  *reinterpret_cast<volatile uint64_t*>(Value<DevicePtr>(p, 2)) = sum;
  return kSuccess;
}

// fake_sleep(milliseconds u64)
Result Sleep(const unsigned*, const unsigned*, unsigned, void** p) {
  std::this_thread::sleep_for(std::chrono::milliseconds(Value<uint64_t>(p, 0)));
  return kSuccess;
}

const fakecuda::Registration fill({"fake_fill", {8, 8, 1}, Fill});
const fakecuda::Registration checksum({"fake_checksum", {8, 8, 8}, Checksum});
const fakecuda::Registration sleep_ms({"fake_sleep", {8}, Sleep});

}  // namespace
