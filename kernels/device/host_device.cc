#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "kernels/device/device.h"
#include "kernels/device/internal/machine_memory.h"

namespace glyd {
namespace {

constexpr unsigned kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr unsigned kReadSeals = F_SEAL_SHRINK | F_SEAL_WRITE;

// Address space, 2 MiB aligned, with a memory file in it. Owns both.
class HostMemory : public Memory {
 public:
  HostMemory(UniqueFd fd, uint64_t bytes, bool own)
      : fd_(std::move(fd)), bytes_(bytes), own_(own) {}
  ~HostMemory() override {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  // Reserves the addresses and maps the file. Called once, before anything else.
  absl::Status Map(bool writable) {
    const uint64_t span = AlignUp(bytes_, kAllocationAlign) + kAllocationAlign;
    void* p = ::mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return MapError(errno);
    const uintptr_t start = reinterpret_cast<uintptr_t>(p);
    const uintptr_t aligned = AlignUp(start, kAllocationAlign);
    const uintptr_t end = aligned + AlignUp(bytes_, getpagesize());
    if (aligned > start) ::munmap(p, aligned - start);
    ::munmap(reinterpret_cast<void*>(end), start + span - end);
    data_ = reinterpret_cast<uint8_t*>(aligned);
    return MapFile(writable);
  }

  uint64_t bytes() const override { return bytes_; }
  uint8_t* data() const override { return data_; }
  bool writable() const { return writable_; }

  absl::Status Seal() override {
    if (!own_)
      return absl::FailedPreconditionError(
          "sealing memory: only the process that allocated it can");
    if (sealed_) return absl::OkStatus();
    // The kernel refuses the seal while a writable mapping is left. Other memory in its place keeps
    // the addresses.
    GLYD_RETURN_IF_ERROR(Unmap());
    if (::fcntl(fd_.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
      const int error = errno;
      GLYD_RETURN_IF_ERROR(MapFile(/*writable=*/true));
      if (error == EBUSY)
        return absl::FailedPreconditionError(
            absl::StrCat("sealing ", bytes_,
                         " bytes of memory: another process still has them mapped for writing"));
      return ErrnoStatus(error, absl::StrCat("sealing ", bytes_, " bytes of memory"));
    }
    sealed_ = true;
    return MapFile(/*writable=*/false);
  }

  absl::StatusOr<ExportedMemory> Export() const override {
    ExportedMemory out;
    out.fd.reset(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
    if (!out.fd) return ErrnoStatus(errno, "exporting memory: duplicating its descriptor");
    out.bytes = bytes_;
    return out;
  }

 private:
  absl::Status MapError(int error) const {
    return ErrnoStatus(error, absl::StrCat("mapping ", bytes_, " bytes of memory"));
  }

  absl::Status Unmap() {
    writable_ = false;
    if (::mmap(data_, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
               -1, 0) == MAP_FAILED)
      return MapError(errno);
    return absl::OkStatus();
  }

  // Over whatever is at data_.
  absl::Status MapFile(bool writable) {
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* p = ::mmap(data_, bytes_, protection, MAP_SHARED | MAP_FIXED, fd_.get(), 0);
    // Linux before 6.7 gives a file sealed against writing no shared mapping, not even to read. A
    // private one shows the same pages.
    if (p == MAP_FAILED && errno == EPERM && !writable)
      p = ::mmap(data_, bytes_, protection, MAP_PRIVATE | MAP_FIXED, fd_.get(), 0);
    if (p == MAP_FAILED) return MapError(errno);
    ::madvise(p, bytes_, MADV_HUGEPAGE);  // a wish: many kernels have it off for memory files
    writable_ = writable;
    return absl::OkStatus();
  }

  UniqueFd fd_;
  const uint64_t bytes_;
  const bool own_;
  uint8_t* data_ = nullptr;
  bool sealed_ = false;
  std::atomic<bool> writable_{false};
};

// What a memory file is called in /proc/PID/maps: a label's plain characters, as many as the kernel
// takes.
std::string FileName(absl::string_view label) {
  std::string name = absl::StrCat("glyd-", label.substr(0, 200));
  for (char& c : name)
    if (c <= ' ' || c > '~' || c == '/') c = '_';
  return name;
}

absl::Status CheckRange(const Memory& m, uint64_t offset, uint64_t bytes, absl::string_view what) {
  if (offset <= m.bytes() && bytes <= m.bytes() - offset) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", bytes, " bytes at ", offset, " of memory of ", m.bytes(), " bytes"));
}

absl::Status CheckWritable(const Memory& m) {
  const HostMemory* host = dynamic_cast<const HostMemory*>(&m);
  if (host == nullptr) return absl::InvalidArgumentError("memory of another device than host");
  if (!host->writable())
    return absl::FailedPreconditionError(
        absl::StrCat("memory of ", m.bytes(), " bytes is sealed or was imported to read"));
  return absl::OkStatus();
}

absl::Status NoRoom(uint64_t bytes, absl::string_view label, absl::string_view why) {
  const internal::MachineMemory memory = internal::ReadMachineMemory();
  return absl::ResourceExhaustedError(
      absl::StrCat("host: ", bytes, " bytes for \"", Printable(label), "\": ", why, " (",
                   memory.available_bytes, " bytes available of ", memory.total_bytes, ")"));
}

class HostDevice : public Device {
 public:
  explicit HostDevice(int threads) : threads_(std::max(threads, 1)) {
    info_.name = info_.kind = "host";
    info_.model = internal::ReadProcessorName();
    info_.total_bytes = internal::ReadMachineMemory().total_bytes;
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<uint64_t> FreeBytes() override {
    return internal::ReadMachineMemory().available_bytes;
  }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(uint64_t bytes,
                                                   absl::string_view label) override {
    if (bytes == 0)
      return absl::InvalidArgumentError(
          absl::StrCat("host: 0 bytes for \"", Printable(label), "\""));
    // A memory file has no limit of its own: past the machine's, the kernel would end a process to
    // make room.
    if (bytes > internal::ReadMachineMemory().available_bytes)
      return NoRoom(bytes, label, "not enough memory");
    const uint64_t size = AlignUp(bytes, kAllocationAlign);
    UniqueFd fd(::memfd_create(FileName(label).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
      return ErrnoStatus(errno, absl::StrCat("host: a memory file for \"", Printable(label), "\""));
    if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
      return NoRoom(bytes, label, std::strerror(errno));
    // Without its pages a full machine would be told by SIGBUS at a write, much later.
    while (::fallocate(fd.get(), 0, 0, static_cast<off_t>(size)) != 0)
      if (errno != EINTR) return NoRoom(bytes, label, std::strerror(errno));
    if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0)
      return ErrnoStatus(errno,
                         absl::StrCat("host: sealing the size of \"", Printable(label), "\""));
    auto memory = std::make_unique<HostMemory>(std::move(fd), size, /*own=*/true);
    GLYD_RETURN_IF_ERROR(memory->Map(/*writable=*/true));
    return memory;
  }

  absl::StatusOr<std::unique_ptr<Memory>> Import(ExportedMemory exported, Access access) override {
    if (exported.transport != Transport::kFd)
      return absl::InvalidArgumentError(
          "importing memory: the host takes a descriptor, no CUDA handle");
    struct stat st;
    if (::fstat(exported.fd.get(), &st) != 0) return ErrnoStatus(errno, "importing memory");
    const int seals = ::fcntl(exported.fd.get(), F_GET_SEALS);
    if (!S_ISREG(st.st_mode) || seals < 0)
      return absl::InvalidArgumentError("importing memory: the descriptor is no memory file");
    const uint64_t size = static_cast<uint64_t>(st.st_size);
    if (exported.bytes == 0 || exported.bytes > size)
      return absl::InvalidArgumentError(absl::StrCat("importing memory: ", exported.bytes,
                                                     " bytes told, the memory file has ", size));
    const bool write = access == Access::kReadWrite;
    const unsigned needed = write ? F_SEAL_SHRINK : kReadSeals;
    if ((seals & needed) != needed)
      return absl::FailedPreconditionError(absl::StrCat(
          "importing memory: the memory file has the seals ", seals, ", ", needed,
          " are needed: it could be ", seals & F_SEAL_SHRINK ? "rewritten" : "cut short"));
    if (write && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0)
      return absl::FailedPreconditionError(absl::StrCat(
          "importing memory to write: the memory file has the seals ", seals, " against writing"));
    auto memory =
        std::make_unique<HostMemory>(std::move(exported.fd), exported.bytes, /*own=*/false);
    GLYD_RETURN_IF_ERROR(memory->Map(write));
    return memory;
  }

  absl::StatusOr<uint8_t*> OpenWindow(Memory& m, uint64_t offset, uint64_t bytes) override {
    GLYD_RETURN_IF_ERROR(CheckRange(m, offset, bytes, "opening a window"));
    if (bytes > kWindowBytes)
      return absl::InvalidArgumentError(
          absl::StrCat("opening a window of ", bytes, " bytes, ", kWindowBytes, " at most"));
    GLYD_RETURN_IF_ERROR(CheckWritable(m));
    return m.data() + offset;
  }

  absl::Status Commit(Memory& m, uint64_t offset, uint8_t* window, uint64_t bytes) override {
    GLYD_RETURN_IF_ERROR(CheckRange(m, offset, bytes, "committing a window"));
    if (window != m.data() + offset)
      return absl::InvalidArgumentError(
          absl::StrCat("committing a window at ", offset, " that was not opened there"));
    return absl::OkStatus();
  }

  absl::Status Finish(Memory&) override { return absl::OkStatus(); }

  absl::Status CopyOut(const Memory& m, uint64_t offset, void* out, uint64_t bytes) override {
    GLYD_RETURN_IF_ERROR(CheckRange(m, offset, bytes, "copying out"));
    std::memcpy(out, m.data() + offset, bytes);
    return absl::OkStatus();
  }

  absl::Status Linear(const LinearArgs& args) override { return LinearOnHost(args, threads_); }

  absl::Status DecodeRows(const PackView& pack, uint64_t row0, uint64_t rows,
                          uint16_t* out) override {
    const uint64_t have = pack.meta.rows;
    if (row0 % kStepRows != 0 || rows % kStepRows != 0 || row0 > have || rows > have - row0)
      return absl::InvalidArgumentError(absl::StrCat("decoding ", rows, " rows from row ", row0,
                                                     " of ", have, ": multiples of ", kStepRows,
                                                     " within them are needed"));
    ::glyd::DecodeRows(pack, row0, rows, out);
    return absl::OkStatus();
  }

 private:
  const int threads_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> CreateHostDevice(int threads) {
  return std::make_unique<HostDevice>(threads);
}

}  // namespace glyd
