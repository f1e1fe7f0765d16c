#include <cstdint>
#include <cstdlib>
#include <vector>

#include "client/src/table.h"
#include "glyd/v1/model.pb.h"

namespace {

constexpr size_t kMemoryBytes = size_t{64} << 10;

void MustBeIn(const std::vector<uint8_t>& memory, const void* at, uint64_t bytes) {
  const auto* p = static_cast<const uint8_t*>(at);
  const auto offset = static_cast<uint64_t>(p - memory.data());
  if (p < memory.data() || offset > memory.size() || bytes > memory.size() - offset) std::abort();
}

}  // namespace

// A table that is taken describes ranges of its memory alone, and packs whose bytes can be checked
// and then decoded.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<uint8_t> memory(kMemoryBytes, 0);
  glyd::v1::ModelTable message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto table = glyd::internal::MakeTable(message, memory);
  if (!table.ok()) return 0;
  for (const glyd::ModelTensor& t : table->tensors)
    MustBeIn(memory, t.bytes.data(), t.bytes.size());
  for (const glyd::ModelPack& p : table->packs) {
    MustBeIn(memory, p.data.data(), p.data.size());
    MustBeIn(memory, p.side.data(), p.side.size());
    MustBeIn(memory, p.base.data(), p.base.size() * sizeof(int32_t));
    std::vector<uint16_t> rows(p.rows * p.cols);
    (void)glyd::DecodeRows(p, 0, p.rows, absl::MakeSpan(rows));
  }
  return 0;
}
