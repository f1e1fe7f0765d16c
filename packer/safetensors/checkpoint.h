#ifndef GLYD_PACKER_SAFETENSORS_CHECKPOINT_H_
#define GLYD_PACKER_SAFETENSORS_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dir.h"
#include "packer/safetensors/header.h"

namespace glyd {

// A safetensors file, open.
struct TensorFile {
  std::string name;   // in its directory
  std::string shown;  // with the directory, printable
  OpenedFile opened;
  int64_t mtime_ns = 0;  // when it was opened
};

// The tensors of a directory of safetensors files: all files open, all headers read and checked, no
// data read. Movable; const use is thread-safe.
class Checkpoint {
 public:
  // model.safetensors, or the shards that model.safetensors.index.json names: the index wins where
  // both are there, and a note tells of what is ignored. Refused: shards that are missing (all are
  // listed), that are no plain file name or no regular file; a tensor in two shards; an index that
  // does not name exactly the tensors of the shards.
  static absl::StatusOr<Checkpoint> Open(const Dir& dir);
  // One file of any name.
  static absl::StatusOr<Checkpoint> OpenFile(const Dir& dir, absl::string_view name);

  // nullptr where there is none.
  const StoredTensor* Find(absl::string_view name) const;
  // FailedPrecondition where a file's size or time of change is no longer what it was when it was
  // opened.
  absl::Status CheckUnchanged() const;

  const std::vector<TensorFile>& files() const { return files_; }
  // By file, then by place in it.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::vector<std::string>& notes() const { return notes_; }

  // For an owner that takes the parts over.
  std::vector<TensorFile> TakeFiles() && { return std::move(files_); }

 private:
  absl::Status Add(TensorFile file);

  std::vector<TensorFile> files_;
  std::vector<StoredTensor> tensors_;
  absl::flat_hash_map<std::string, size_t> by_name_;
  std::vector<std::string> notes_;
};

// The weight_map of an index, in its order; DataLoss where it is none, or names a file by more than
// a plain name.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseIndex(
    std::string json, absl::string_view shown);

// ParseIndex of an index in a directory.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadIndex(const Dir& dir,
                                                                           absl::string_view name);

inline constexpr char kSingleFile[] = "model.safetensors";
inline constexpr char kIndexFile[] = "model.safetensors.index.json";
inline constexpr uint64_t kMaxJsonBytes = 100'000'000;

}  // namespace glyd

#endif  // GLYD_PACKER_SAFETENSORS_CHECKPOINT_H_
