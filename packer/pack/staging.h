#ifndef GLYD_PACKER_PACK_STAGING_H_
#define GLYD_PACKER_PACK_STAGING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dir.h"
#include "base/unique_fd.h"

namespace glyd {

// A new directory that appears under its name whole or not at all. It is filled beside its place
// under a temporary name (.NAME.glyd-tmp-PID-XXXXXX), and Publish syncs it and renames it.
// Destroyed before, it is removed; what a killed process left is removed by the next one that
// writes the same output. One process at a time writes an output: a lock (.NAME.glyd-lock in the
// parent) is held from Create until the object ends. Where the file system cannot exchange two
// names, a process killed within Publish may leave the old output under a temporary name alone: the
// next one gives it its name back before all else. Movable; not thread-safe but for CreateFile's
// descriptors.
class Staging {
 public:
  struct Options {
    bool force = false;  // replace an output that is there
    // An output may be replaced where it is empty, or holds one of these files and, besides,
    // nothing but regular files that `written` knows by name: whatever else it holds is somebody's,
    // and would be gone.
    std::vector<std::string> replaceable;
    std::function<bool(absl::string_view)> written;
    // The input: neither it and the output, nor one of them in the other.
    const Dir* source = nullptr;
    bool source_is_file = false;  // one file of `source`, beside which an output may lie
    std::string source_revision;  // of a Hub snapshot: the cache of its model is input, too
    // Open files of which the output must not hold a link.
    std::vector<std::pair<uint64_t, uint64_t>> source_files;  // device, inode
  };

  // AlreadyExists where the output is there and force is not set, or where another process (named)
  // writes it now; InvalidArgument for a name that is no plain file name, an output that is a link,
  // no directory, or the source, in it or around it.
  static absl::StatusOr<Staging> Create(const Dir& parent, const std::string& name,
                                        Options options);

  // Removes what a killed process left of its writing of this output, temporaries and its lock, and
  // gives an old output its name back.
  // Nothing is touched where there is nothing. AlreadyExists where a living process (named) writes
  // it now: that one tidies up itself.
  static absl::Status RemoveLeftovers(const Dir& parent, const std::string& name);

  Staging(Staging&&) noexcept;
  Staging& operator=(Staging&&) = delete;
  ~Staging();

  // ResourceExhausted, with both numbers, where the file system has less than `bytes` free.
  absl::Status CheckRoom(uint64_t bytes) const;
  // A new file of `bytes` (0: not known yet), open for writing, with room for them where the file
  // system can tell.
  absl::StatusOr<UniqueFd> CreateFile(absl::string_view name, uint64_t bytes);
  // A new file with this content, synced.
  absl::Status WriteFile(absl::string_view name, absl::string_view content);
  // Copies an open file's content to a new file, synced.
  absl::Status CopyFile(const OpenedFile& from, absl::string_view shown, absl::string_view name);

  // Syncs the directory (its files are synced by whoever wrote them) and gives it its name. On
  // failure nothing is published, and the old output, where there is one, is still there; but for a
  // failure to sync the parent in the end, whose text says that the output is in its place.
  absl::Status Publish();

  // A failure for want of disk with what the whole output needs; any other status as it is.
  static absl::Status TellNeed(absl::Status status, uint64_t bytes);

  // The output as messages call it.
  const std::string& shown() const;

 private:
  struct State;
  explicit Staging(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace glyd

#endif  // GLYD_PACKER_PACK_STAGING_H_
