#include "kernels/device/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "kernels/device/cuda/cuda_memory.h"
#include "kernels/device/cuda/gpu.h"
#include "kernels/device/cuda/pack_copy.h"
#include "kernels/device/cuda/pinned_ring.h"

namespace glyd {
namespace {

absl::Status CheckRange(const Memory& m, uint64_t offset, uint64_t bytes, absl::string_view what) {
  if (offset <= m.bytes() && bytes <= m.bytes() - offset) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", bytes, " bytes at ", offset, " of memory of ", m.bytes(), " bytes"));
}

template <typename T>
cu::DevicePtr Address(const T* p) {
  return reinterpret_cast<cu::DevicePtr>(p);
}

class CudaDevice : public Device {
 public:
  CudaDevice(std::shared_ptr<const cu::Gpu> gpu, std::unique_ptr<PinnedRing> ring, int threads,
             Transport transport)
      : gpu_(std::move(gpu)),
        ring_(std::move(ring)),
        threads_(std::max(threads, 1)),
        transport_(transport) {}

  absl::Status Describe() {
    const cu::Driver& cu = gpu_->driver();
    info_.name = gpu_->name();
    info_.kind = "cuda";
    char name[256] = {};
    GLYD_CU(DeviceGetName(name, sizeof name - 1, gpu_->ordinal()), info_.name);
    info_.model = name;
    cu::Uuid uuid = {};
    GLYD_CU(DeviceGetUuid(&uuid, gpu_->ordinal()), info_.name);
    info_.uuid = cu::UuidText(uuid);
    size_t total = 0;
    GLYD_CU(DeviceTotalMem(&total, gpu_->ordinal()), info_.name);
    info_.total_bytes = total;
    return absl::OkStatus();
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<uint64_t> FreeBytes() override {
    const cu::Driver& cu = gpu_->driver();
    const cu::ScopedContext current(cu, gpu_->context());
    GLYD_RETURN_IF_ERROR(current.status());
    size_t free = 0, total = 0;
    GLYD_CU(MemGetInfo(&free, &total), absl::StrCat(info_.name, ": its free memory"));
    return free;
  }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(uint64_t bytes,
                                                   absl::string_view label) override {
    if (bytes == 0)
      return absl::InvalidArgumentError(
          absl::StrCat(info_.name, ": 0 bytes for \"", Printable(label), "\""));
    if (bytes > info_.total_bytes) return NoRoom(bytes, label);
    auto memory = AllocateCuda(gpu_, transport_, AlignUp(bytes, kAllocationAlign));
    if (absl::IsResourceExhausted(memory.status())) return NoRoom(bytes, label);
    if (!memory.ok()) return memory.status();
    const cu::Driver& cu = gpu_->driver();
    const cu::ScopedContext current(cu, gpu_->context());
    GLYD_RETURN_IF_ERROR(current.status());
    const std::string what = absl::StrCat(info_.name, ": clearing ", bytes, " bytes");
    GLYD_CU(MemsetD8Async((*memory)->at(), 0, (*memory)->bytes(), nullptr), what);
    GLYD_CU(StreamSynchronize(nullptr), what);
    return Known(*std::move(memory));
  }

  absl::StatusOr<std::unique_ptr<Memory>> Import(ExportedMemory exported, Access access) override {
    GLYD_ASSIGN_OR_RETURN(auto memory, ImportCuda(gpu_, std::move(exported), access));
    return Known(std::move(memory));
  }

  absl::StatusOr<uint8_t*> OpenWindow(Memory& m, uint64_t offset, uint64_t bytes) override {
    GLYD_RETURN_IF_ERROR(CheckRange(m, offset, bytes, "opening a window"));
    if (bytes > kWindowBytes)
      return absl::InvalidArgumentError(
          absl::StrCat("opening a window of ", bytes, " bytes, ", kWindowBytes, " at most"));
    GLYD_ASSIGN_OR_RETURN(const CudaMemory* ours, Ours(m));
    if (!ours->writable())
      return absl::FailedPreconditionError(
          absl::StrCat("memory of ", m.bytes(), " bytes is sealed or was imported to read"));
    return ring_->Open(*ours, offset, bytes);
  }

  absl::Status Commit(Memory& m, uint64_t offset, uint8_t* window, uint64_t bytes) override {
    GLYD_RETURN_IF_ERROR(CheckRange(m, offset, bytes, "committing a window"));
    GLYD_ASSIGN_OR_RETURN(const CudaMemory* ours, Ours(m));
    return ring_->Commit(*ours, offset, window, bytes);
  }

  absl::Status Finish(Memory&) override { return ring_->Finish(); }

  absl::Status CopyOut(const Memory& m, uint64_t offset, void* out, uint64_t bytes) override {
    GLYD_RETURN_IF_ERROR(CheckRange(m, offset, bytes, "copying out"));
    GLYD_ASSIGN_OR_RETURN(const CudaMemory* ours, Ours(m));
    return ring_->Read(ours->at() + offset, out, bytes);
  }

  // The product and the decoding run on the CPU, over copies: right on every GPU and in every
  // build, and slow. A route by the kernels of kernels/cuda takes their place where those are built
  // in.
  absl::Status Linear(const LinearArgs& args) override {
    if (args.m == 0) return absl::OkStatus();
    const uint64_t rows = args.pack.meta.rows, cols = args.pack.meta.cols;
    GLYD_RETURN_IF_ERROR(CheckShape(rows, cols));
    uint64_t x_count, y_count;
    if (args.x == nullptr || args.y == nullptr || !CheckedMul(args.m, cols, &x_count) ||
        !CheckedMul(args.m, rows, &y_count) || std::max(x_count, y_count) > info_.total_bytes / 2)
      return absl::InvalidArgumentError(
          absl::StrCat("a product of ", args.m, " rows by [", rows, ", ", cols, "]"));
    GLYD_ASSIGN_OR_RETURN(const EncodedPack pack, CopyPackRows(args.pack, 0, rows, Reader()));
    std::vector<uint16_t> x(x_count), y(y_count), bias(args.bias == nullptr ? 0 : rows);
    GLYD_RETURN_IF_ERROR(ring_->Read(Address(args.x), x.data(), x_count * sizeof(uint16_t)));
    if (args.bias != nullptr)
      GLYD_RETURN_IF_ERROR(ring_->Read(Address(args.bias), bias.data(), rows * sizeof(uint16_t)));
    GLYD_RETURN_IF_ERROR(LinearOnHost({.pack = pack.view(),
                                       .x = x.data(),
                                       .m = args.m,
                                       .bias = args.bias == nullptr ? nullptr : bias.data(),
                                       .y = y.data()},
                                      threads_));
    return ring_->Write(Address(args.y), y.data(), y_count * sizeof(uint16_t));
  }

  absl::Status DecodeRows(const PackView& pack, uint64_t row0, uint64_t rows,
                          uint16_t* out) override {
    const uint64_t have = pack.meta.rows;
    if (row0 % kStepRows != 0 || rows % kStepRows != 0 || row0 > have || rows > have - row0)
      return absl::InvalidArgumentError(absl::StrCat("decoding ", rows, " rows from row ", row0,
                                                     " of ", have, ": multiples of ", kStepRows,
                                                     " within them are needed"));
    if (rows == 0) return absl::OkStatus();
    GLYD_ASSIGN_OR_RETURN(const EncodedPack part, CopyPackRows(pack, row0, rows, Reader()));
    ::glyd::DecodeRows(part.view(), 0, rows, out);
    return absl::OkStatus();
  }

 private:
  ReadDevice Reader() const {
    return [ring = ring_](const void* from, void* to, uint64_t bytes) {
      return ring->Read(Address(from), to, bytes);
    };
  }

  std::unique_ptr<Memory> Known(std::unique_ptr<CudaMemory> m) {
    m->OnEnd([ring = ring_](const CudaMemory* gone) { ring->Forget(gone); });
    return m;
  }

  absl::StatusOr<const CudaMemory*> Ours(const Memory& m) const {
    const auto* ours = dynamic_cast<const CudaMemory*>(&m);
    if (ours == nullptr || ours->gpu().ordinal() != gpu_->ordinal())
      return absl::InvalidArgumentError(absl::StrCat("memory of another device than ", info_.name));
    return ours;
  }

  absl::Status NoRoom(uint64_t bytes, absl::string_view label) {
    const absl::StatusOr<uint64_t> free = FreeBytes();
    return absl::ResourceExhaustedError(absl::StrCat(
        info_.name, ": ", bytes, " bytes for \"", Printable(label), "\": not enough memory (",
        free.ok() ? *free : 0, " bytes free of ", info_.total_bytes, ")"));
  }

  const std::shared_ptr<const cu::Gpu> gpu_;
  const std::shared_ptr<PinnedRing> ring_;
  const int threads_;
  const Transport transport_;
  DeviceInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int ordinal, int threads,
                                                         Transport transport) {
  GLYD_ASSIGN_OR_RETURN(std::shared_ptr<const cu::Gpu> gpu, cu::Gpu::Open(ordinal));
  GLYD_ASSIGN_OR_RETURN(std::unique_ptr<PinnedRing> ring, PinnedRing::Create(gpu));
  auto device = std::make_unique<CudaDevice>(std::move(gpu), std::move(ring), threads, transport);
  GLYD_RETURN_IF_ERROR(device->Describe());
  return device;
}

}  // namespace glyd
