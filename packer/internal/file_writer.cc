#include "packer/internal/file_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

// Of a file's place, a buffer's address and a piece's length in a write that bypasses the page
// cache.
constexpr uint64_t kBlock = 4096;
// Large enough that a disk is busy with it longer than a call takes, small enough to be in cache
// when it is filled.
constexpr uint64_t kBufferBytes = 1 << 20;
// A piece this small is written at once: handing it over would cost more.
constexpr uint64_t kSmallBytes = 64 << 10;
constexpr size_t kMaxInFlight = 16;

}  // namespace

void FileWriter::Stream::Memory::operator()(uint8_t* p) const {
  ::operator delete (p, std::align_val_t{kBlock});
}

FileWriter::FileWriter(Options options) : options_(options) {}

FileWriter::~FileWriter() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    if (failed_.ok()) failed_ = absl::CancelledError("not finished");
  }
  for (std::thread& t : threads_) t.join();
}

size_t FileWriter::Add(UniqueFd fd, std::string shown, uint64_t bytes) {
  File f;
  f.fd = std::move(fd);
  f.shown = std::move(shown);
  f.bytes = bytes;
  if (bytes >= options_.direct_bytes) {
    // A description of its own: the flag must not be on the other one. Where this fails, the page
    // cache it is.
    const std::string self = absl::StrCat("/proc/self/fd/", f.fd.get());
    f.direct = UniqueFd(::open(self.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  }
  files_.push_back(std::move(f));
  return files_.size() - 1;
}

FileWriter::Buffer FileWriter::NewBuffer() {
  {
    absl::MutexLock lock(&mutex_);
    if (!free_.empty()) {
      Buffer b = std::move(free_.back());
      free_.pop_back();
      return b;
    }
  }
  return Buffer(static_cast<uint8_t*>(::operator new (kBufferBytes, std::align_val_t{kBlock})));
}

absl::Status FileWriter::Submit(Piece piece) {
  if (piece.bytes < kSmallBytes) {
    absl::Status s = Write(piece);
    absl::MutexLock lock(&mutex_);
    free_.push_back(std::move(piece.buffer));
    return s;
  }
  absl::ReleasableMutexLock lock(&mutex_);
  const auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return in_flight_ < kMaxInFlight || !failed_.ok();
  };
  mutex_.Await(absl::Condition(&room));
  if (!failed_.ok()) return failed_;
  try {
    while (threads_.size() < static_cast<size_t>(options_.threads))
      threads_.emplace_back([this] { Work(); });
  } catch (const std::exception&) {
    // Fewer do; where there is none at all the caller writes.
    if (threads_.empty()) {
      lock.Release();
      return Write(piece);
    }
  }
  queue_.push_back(std::move(piece));
  ++in_flight_;
  return absl::OkStatus();
}

void FileWriter::Work() {
  const auto ready = [this]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || !queue_.empty(); };
  mutex_.Lock();
  for (;;) {
    mutex_.Await(absl::Condition(&ready));
    if (queue_.empty()) break;
    Piece piece = std::move(queue_.front());
    queue_.pop_front();
    absl::Status s = failed_;
    mutex_.Unlock();
    // After a failure, and at the end of a writer that was not finished, the rest is not wanted.
    if (s.ok()) s = Write(piece);
    mutex_.Lock();
    if (failed_.ok()) failed_ = std::move(s);
    free_.push_back(std::move(piece.buffer));
    --in_flight_;
  }
  mutex_.Unlock();
}

absl::Status FileWriter::Write(const Piece& piece) const {
  const File& f = files_[piece.file];
  const uint64_t end = piece.at + piece.bytes;
  const uint8_t* const first = piece.buffer.get() + piece.at % kBlock;
  // Blocks that this piece shares with its neighbours go through the page cache, which joins them.
  const uint64_t a = AlignUp(piece.at, kBlock), b = end / kBlock * kBlock;
  if (!f.direct || a >= b) {
    GLYD_RETURN_IF_ERROR(PwriteFull(f.fd.get(), first, piece.bytes, piece.at, f.shown));
    // The disk starts now, not at the sync in the end. Advice: an error would come again there.
    if (piece.bytes >= kSmallBytes)
      (void)::sync_file_range(f.fd.get(), static_cast<off_t>(piece.at),
                              static_cast<off_t>(piece.bytes), SYNC_FILE_RANGE_WRITE);
    return absl::OkStatus();
  }
  GLYD_RETURN_IF_ERROR(PwriteFull(f.fd.get(), first, a - piece.at, piece.at, f.shown));
  GLYD_RETURN_IF_ERROR(PwriteFull(f.direct.get(), first + (a - piece.at), b - a, a, f.shown));
  return PwriteFull(f.fd.get(), first + (b - piece.at), end - b, b, f.shown);
}

FileWriter::Stream::Stream(FileWriter* writer, size_t file, uint64_t offset)
    : writer_(writer), file_(file), at_(offset) {}

absl::Status FileWriter::Stream::Append(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (buffer_ == nullptr) buffer_ = writer_->NewBuffer();
    const uint64_t start = at_ % kBlock;
    const uint64_t n = std::min<uint64_t>(bytes.size(), kBufferBytes - start - filled_);
    std::memcpy(buffer_.get() + start + filled_, bytes.data(), n);
    filled_ += n;
    bytes.remove_prefix(n);
    if (start + filled_ == kBufferBytes) GLYD_RETURN_IF_ERROR(Flush());
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Stream::Flush() {
  if (filled_ == 0) return absl::OkStatus();
  const uint64_t at = at_, n = filled_;
  at_ += n;
  filled_ = 0;
  return writer_->Submit({std::move(buffer_), file_, at, n});
}

absl::Status FileWriter::Finish(Progress& progress) {
  {
    absl::MutexLock lock(&mutex_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return in_flight_ == 0; };
    mutex_.Await(absl::Condition(&idle));
    GLYD_RETURN_IF_ERROR(failed_);
  }
  for (const File& f : files_) {
    GLYD_RETURN_IF_ERROR(Sync(f.fd.get(), f.shown));
    // Where a large file had to go through the page cache, it need not stay there.
    if (f.bytes >= options_.direct_bytes && !f.direct)
      (void)::posix_fadvise(f.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    progress.Advance(f.bytes);
  }
  return absl::OkStatus();
}

}  // namespace glyd
