#include "server/core/journal.h"

#include <sqlite3.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace glyd {
namespace {

using glyd::v1::Job;

// Version N of the tables is made from version N - 1 by kMigrations[N - 1]; only ever added to.
constexpr const char* kMigrations[] = {
    "CREATE TABLE jobs (number INTEGER PRIMARY KEY, job BLOB NOT NULL, sha256 TEXT NOT NULL);"
    "CREATE TABLE damaged (number INTEGER PRIMARY KEY, job BLOB, sha256 TEXT);",
};
constexpr int kVersion = sizeof kMigrations / sizeof kMigrations[0];

// A prepared statement, finished at the end.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) { sqlite3_prepare_v2(db, sql, -1, &s_, nullptr); }
  ~Statement() { sqlite3_finalize(s_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void Bind(int i, uint64_t v) { sqlite3_bind_int64(s_, i, static_cast<sqlite3_int64>(v)); }
  void BindBlob(int i, const std::string& v) {
    sqlite3_bind_blob64(s_, i, v.data(), v.size(), SQLITE_TRANSIENT);
  }
  void BindText(int i, const std::string& v) {
    sqlite3_bind_text(s_, i, v.data(), static_cast<int>(v.size()), SQLITE_TRANSIENT);
  }
  int Step() { return s_ == nullptr ? SQLITE_ERROR : sqlite3_step(s_); }
  uint64_t Number(int column) { return static_cast<uint64_t>(sqlite3_column_int64(s_, column)); }
  std::string Bytes(int column) {
    const void* p = sqlite3_column_blob(s_, column);
    const int n = sqlite3_column_bytes(s_, column);
    return p == nullptr ? std::string() : std::string(static_cast<const char*>(p), n);
  }

 private:
  sqlite3_stmt* s_ = nullptr;
};

absl::StatusOr<sqlite3*> OpenDatabase(const std::string& path) {
  sqlite3* db = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &db,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  if (code == SQLITE_OK) return db;
  const std::string why = db != nullptr ? sqlite3_errmsg(db) : "no memory";
  sqlite3_close(db);
  return absl::InternalError(absl::StrCat("journal ", path, ": ", why));
}

uint64_t VersionOf(sqlite3* db) {
  Statement read(db, "PRAGMA user_version");
  return read.Step() == SQLITE_ROW ? read.Number(0) : 0;
}

// Empty where the file is whole and its tables are as a version that this glydd knows makes them.
std::string WhyNotUsable(sqlite3* db) {
  {
    Statement check(db, "PRAGMA quick_check(1)");
    if (check.Step() != SQLITE_ROW || check.Bytes(0) != "ok") return "was damaged";
  }
  const uint64_t version = VersionOf(db);
  if (version > kVersion)
    return absl::StrCat("is of version ", version, ", this glydd knows ", kVersion);
  for (const char* table : {"jobs", "damaged"}) {
    Statement columns(db,
                      absl::StrCat("SELECT number, job, sha256 FROM ", table, " LIMIT 1").c_str());
    const int code = columns.Step();
    if (version > 0 && code != SQLITE_ROW && code != SQLITE_DONE) return "was damaged";
  }
  return "";
}

}  // namespace

Journal::~Journal() { sqlite3_close(db_); }

absl::Status Journal::Error(const char* doing) const {
  return absl::InternalError(absl::StrCat("journal: ", doing, ": ", sqlite3_errmsg(db_)));
}

absl::Status Journal::Run(const char* sql) {
  return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus()
                                                                        : Error(sql);
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path,
                                                       std::vector<std::string>* notes) {
  GLYD_ASSIGN_OR_RETURN(sqlite3 * db, OpenDatabase(path));
  const std::string why = WhyNotUsable(db);
  if (!why.empty()) {
    sqlite3_close(db);
    std::string aside;
    for (int i = 1; aside.empty() || std::filesystem::exists(aside); ++i)
      aside = absl::StrCat(path, ".aside-", i);
    std::error_code error;
    std::filesystem::rename(path, aside, error);
    if (error)
      return absl::InternalError(
          absl::StrCat("journal ", path, " ", why, ", and: ", error.message()));
    // The log belongs to the file that is gone: a new database must not replay it.
    for (const char* tail : {"-wal", "-shm"})
      std::filesystem::rename(path + tail, aside + tail, error);
    notes->push_back(absl::StrCat("the journal ", why, ": it was put aside as ", aside));
    GLYD_ASSIGN_OR_RETURN(db, OpenDatabase(path));
  }
  auto journal = std::unique_ptr<Journal>(new Journal(db));
  sqlite3_busy_timeout(db, 5000);
  // FULL: a commit is on the disk when it returns, also in WAL mode.
  GLYD_RETURN_IF_ERROR(journal->Run("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"));
  GLYD_RETURN_IF_ERROR(journal->Migrate());
  return journal;
}

absl::Status Journal::Migrate() {
  for (uint64_t v = VersionOf(db_); v < kVersion; ++v)
    GLYD_RETURN_IF_ERROR(Run(
        absl::StrCat("BEGIN;", kMigrations[v], "PRAGMA user_version=", v + 1, ";COMMIT").c_str()));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Journal::Recovered>> Journal::Recover() {
  std::vector<Recovered> out;
  std::vector<uint64_t> bad;
  {
    Statement rows(db_, "SELECT number, job, sha256 FROM jobs ORDER BY number");
    int code;
    while ((code = rows.Step()) == SQLITE_ROW) {
      Recovered r;
      r.number = rows.Number(0);
      const std::string bytes = rows.Bytes(1);
      if (rows.Bytes(2) != Sha256Hex(bytes.data(), bytes.size()) || !r.job.ParseFromString(bytes)) {
        bad.push_back(r.number);
        continue;
      }
      out.push_back(std::move(r));
    }
    if (code != SQLITE_DONE) return Error("reading the jobs");
  }
  for (const uint64_t number : bad) {
    Statement move(db_, "INSERT OR REPLACE INTO damaged SELECT * FROM jobs WHERE number = ?");
    move.Bind(1, number);
    if (move.Step() != SQLITE_DONE) return Error("putting a damaged job aside");
    GLYD_RETURN_IF_ERROR(Forget(number));
  }
  Statement rows(db_, "SELECT number FROM damaged ORDER BY number");
  while (rows.Step() == SQLITE_ROW) {
    Recovered r;
    r.number = rows.Number(0);
    r.damaged = true;
    out.push_back(std::move(r));
  }
  return out;
}

absl::Status Journal::Put(uint64_t number, const Job& job) {
  const std::string bytes = job.SerializeAsString();
  Statement put(db_, "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)");
  put.Bind(1, number);
  put.BindBlob(2, bytes);
  put.BindText(3, Sha256Hex(bytes.data(), bytes.size()));
  const int code = put.Step();
  if (code == SQLITE_FULL)
    return absl::ResourceExhaustedError("the state directory's disk is full");
  return code == SQLITE_DONE ? absl::OkStatus() : Error("writing a job");
}

absl::Status Journal::Forget(uint64_t number) {
  Statement forget(db_, "DELETE FROM jobs WHERE number = ?");
  forget.Bind(1, number);
  return forget.Step() == SQLITE_DONE ? absl::OkStatus() : Error("forgetting a job");
}

}  // namespace glyd
