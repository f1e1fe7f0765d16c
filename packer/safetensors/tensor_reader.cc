#include "packer/safetensors/tensor_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include "base/file.h"

namespace glyd {
namespace {

// Asks for single bytes all over the file without waiting for a disk.
bool IsCold(const OpenedFile& file) {
  constexpr uint64_t kProbes = 32;
  uint64_t absent = 0, asked = 0;
  for (uint64_t i = 0; i < kProbes; ++i) {
    char byte;
    struct iovec to = {&byte, 1};
    const uint64_t at = file.size / kProbes * i;
    const ssize_t n = ::preadv2(file.fd.get(), &to, 1, static_cast<off_t>(at), RWF_NOWAIT);
    if (n < 0 && errno != EAGAIN) return false;
    absent += n < 0;
    ++asked;
  }
  return absent * 2 > asked;
}

}  // namespace

TensorReader::TensorReader(absl::Span<const TensorFile> files) : files_(files) {
  for (const TensorFile& f : files) cold_.push_back(IsCold(f.opened));
}

absl::Status TensorReader::Read(const StoredTensor& tensor, uint64_t at, uint64_t bytes,
                                void* to) const {
  const TensorFile& f = files_[tensor.file];
  return PreadFull(f.opened.fd.get(), to, bytes, tensor.offset + at, f.shown);
}

void TensorReader::Drop(const StoredTensor& tensor) const {
  if (!cold_[tensor.file]) return;
  // Advice: nothing is lost where it is not taken.
  (void)::posix_fadvise(files_[tensor.file].opened.fd.get(), static_cast<off_t>(tensor.offset),
                        static_cast<off_t>(tensor.bytes), POSIX_FADV_DONTNEED);
}

}  // namespace glyd
