#ifndef GLYD_SERVER_CORE_JOURNAL_H_
#define GLYD_SERVER_CORE_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "glyd/v1/jobs.pb.h"

struct sqlite3;

namespace glyd {

// The jobs of this daemon and of those before it, in an SQLite database (WAL). A job is stored as
// its message with a hash of it, so that a damaged one is told from a good one. One thread at a
// time; every call may wait for the disk.
class Journal {
 public:
  struct Recovered {
    uint64_t number = 0;
    glyd::v1::Job job;
    bool damaged = false;  // `job` has nothing but its id and why
  };

  // Opens or creates the database at `path` and brings its tables to this version's. A file that is
  // corrupt, or a newer version's, is put aside (PATH.aside-N) and a new one begun; `notes` says
  // so.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path,
                                                       std::vector<std::string>* notes);
  ~Journal();

  // Every job, by number. Damaged ones are moved to a table of their own, and are given out this
  // once and each time.
  absl::StatusOr<std::vector<Recovered>> Recover();
  // Stores a job; on the disk when this returns.
  absl::Status Put(uint64_t number, const glyd::v1::Job& job);
  absl::Status Forget(uint64_t number);

 private:
  explicit Journal(sqlite3* db) : db_(db) {}
  absl::Status Run(const char* sql);
  absl::Status Error(const char* doing) const;
  absl::Status Migrate();

  sqlite3* const db_;
};

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_JOURNAL_H_
