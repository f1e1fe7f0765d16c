#include "packer/pack/source_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"

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

SourceReader::SourceReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  for (const TensorFile& f : checkpoint.files()) cold_.push_back(IsCold(f.opened));
}

absl::Status SourceReader::ReadPiece(const StoredTensor& tensor, uint64_t at, uint64_t bytes,
                                     uint8_t* to) const {
  const TensorFile& f = checkpoint_.files()[tensor.file];
  return PreadFull(f.opened.fd.get(), to, bytes, tensor.offset + at, f.shown);
}

void SourceReader::Drop(const StoredTensor& tensor) const {
  if (!cold_[tensor.file]) return;
  // Advice: nothing is lost where it is not taken.
  (void)::posix_fadvise(checkpoint_.files()[tensor.file].opened.fd.get(),
                        static_cast<off_t>(tensor.offset), static_cast<off_t>(tensor.bytes),
                        POSIX_FADV_DONTNEED);
}

absl::Status SourceReader::Read(absl::Span<const Request> requests) const {
  for (const Request& r : requests) {
    Sha256 hash;
    for (uint64_t at = 0; at < r.tensor->bytes;) {
      const uint64_t n = std::min(kPieceBytes, r.tensor->bytes - at);
      GLYD_RETURN_IF_ERROR(ReadPiece(*r.tensor, at, n, r.to + at));
      if (r.sha256 != nullptr) hash.Update(r.to + at, n);
      if (r.histogram != nullptr)
        r.histogram->Add(reinterpret_cast<const uint16_t*>(r.to + at), n / 2);
      at += n;
    }
    if (r.sha256 != nullptr) *r.sha256 = hash.Finish();
    Drop(*r.tensor);
  }
  return absl::OkStatus();
}

absl::Status SourceReader::Stream(const StoredTensor& tensor, uint8_t* scratch,
                                  const Piece& f) const {
  for (uint64_t at = 0; at < tensor.bytes;) {
    const uint64_t n = std::min(kPieceBytes, tensor.bytes - at);
    GLYD_RETURN_IF_ERROR(ReadPiece(tensor, at, n, scratch));
    GLYD_RETURN_IF_ERROR(f({scratch, n}, at));
    at += n;
  }
  Drop(tensor);
  return absl::OkStatus();
}

}  // namespace glyd
