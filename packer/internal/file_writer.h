#ifndef GLYD_PACKER_INTERNAL_FILE_WRITER_H_
#define GLYD_PACKER_INTERNAL_FILE_WRITER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/progress.h"
#include "base/unique_fd.h"

namespace glyd {

// Writes files of known size at many places at once, on threads of its own: whoever produces the
// bytes does not wait for a disk. Large files bypass the page cache where the file system can:
// copying into it costs as much as hashing, and what it held before stays. Add all files before the
// first Stream; after that, Streams are for one thread each, any number of them at once.
class FileWriter {
 public:
  struct Options {
    int threads = 4;                   // a disk takes more from four calls at once than from two
    uint64_t direct_bytes = 64 << 20;  // a file this large bypasses the page cache
  };
  FileWriter() : FileWriter(Options()) {}
  explicit FileWriter(Options options);
  // Waits for what is being written.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // An open file of `bytes`, of which nothing is written yet. `shown` names it in messages. Returns
  // its index.
  size_t Add(UniqueFd fd, std::string shown, uint64_t bytes);

  // Bytes one after the other from an offset of a file.
  class Stream {
   public:
    Stream() = default;
    Stream(FileWriter* writer, size_t file, uint64_t offset);
    Stream(Stream&&) noexcept = default;
    Stream& operator=(Stream&&) noexcept = default;

    // Takes them over: written by the time that Finish returns. A failure may be that of an earlier
    // Append.
    absl::Status Append(absl::Span<const uint8_t> bytes);
    // After the last Append.
    absl::Status Flush();

   private:
    FileWriter* writer_ = nullptr;
    size_t file_ = 0;
    uint64_t at_ = 0;  // of the buffer's first byte, in the file
    uint64_t filled_ = 0;
    struct Memory {
      void operator()(uint8_t* p) const;
    };
    friend class FileWriter;
    std::unique_ptr<uint8_t, Memory>
        buffer_;  // lies in memory as its place in the file does in its page
  };

  // Once all Streams are flushed: waits until all is written, and syncs every file; progress
  // advances by their bytes.
  absl::Status Finish(Progress& progress);

 private:
  using Buffer = std::unique_ptr<uint8_t, Stream::Memory>;
  struct File {
    UniqueFd fd, direct;  // direct: none where the page cache is used
    std::string shown;
    uint64_t bytes = 0;
  };
  struct Piece {
    Buffer buffer;
    size_t file = 0;
    uint64_t at = 0, bytes = 0;
  };

  Buffer NewBuffer();
  absl::Status Submit(Piece piece);
  absl::Status Write(const Piece& piece) const;
  void Work();

  const Options options_;
  std::vector<File> files_;

  mutable absl::Mutex mutex_;
  std::deque<Piece> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<Buffer> free_ ABSL_GUARDED_BY(mutex_);
  size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // started by the first piece
};

}  // namespace glyd

#endif  // GLYD_PACKER_INTERNAL_FILE_WRITER_H_
