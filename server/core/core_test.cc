#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/core/config.h"
#include "server/core/journal.h"
#include "server/core/lock_file.h"
#include "server/core/memory_budget.h"
#include "server/core/roots.h"
#include "server/core/sessions.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

std::string TempDir() {
  std::string t = ::testing::TempDir() + "/glydXXXXXX";
  EXPECT_NE(::mkdtemp(t.data()), nullptr);
  return t;
}

ParsedConfig Parse(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), "glydd");
  std::vector<char*> argv, env;
  for (std::string& a : arguments) argv.push_back(a.data());
  for (std::string& e : environment) env.push_back(e.data());
  argv.push_back(nullptr);
  env.push_back(nullptr);
  return ParseConfig(static_cast<int>(arguments.size()), argv.data(), env.data());
}

TEST(ConfigTest, FlagBeatsEnvironmentBeatsFile) {
  const std::string file = TempDir() + "/glydd.toml";
  std::ofstream(file)
      << "socket = \"/f/s\"\nbudget = \"1GiB\"\njobs = 3\nroot = [\"a=/x\", \"b=/y:rw\"]\n";
  const ParsedConfig p = Parse({"--config", file, "--socket", "/flag/s"},
                               {"GLYDD_SOCKET=/env/s", "GLYDD_BUDGET=2GiB"});
  ASSERT_EQ(p.exit_code, -1) << p.text;
  EXPECT_EQ(p.config.socket, "/flag/s");
  EXPECT_EQ(p.config.broker_socket(), "/flag/broker.sock");
  EXPECT_EQ(p.config.budget, "2GiB");
  EXPECT_EQ(p.config.jobs, 3);
  ASSERT_EQ(p.config.roots.size(), 2u);
  EXPECT_FALSE(p.config.roots[0].writable);
  EXPECT_TRUE(p.config.roots[1].writable);
  EXPECT_THAT(p.config.effective, HasSubstr("socket = /flag/s  # flag --socket"));
  EXPECT_THAT(p.config.effective, HasSubstr("budget = 2GiB  # environment GLYDD_BUDGET"));
  EXPECT_THAT(p.config.effective, HasSubstr("jobs = 3  # " + file));
  EXPECT_THAT(p.config.effective, HasSubstr("max-clients = 1024  # default"));
}

TEST(ConfigTest, BadValuesNameThemselvesAndExit78) {
  const std::string file = TempDir() + "/glydd.toml";
  std::ofstream(file) << "sockte = \"/f/s\"\n";
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"--budget", "lots"}, "lots"},
      {{"--budget", "0%"}, "0%"},
      {{"--jobs", "-1"}, "-1"},
      {{"--root", "nodir"}, "nodir"},
      {{"--root", "a=/x", "--root", "a=/y"}, "once"},
      {{"--root", "../a=/x"}, "../a"},
      {{"--device", "cuda:0"}, "cuda:0"},
      {{"--no-such-flag"}, "no-such-flag"},
      {{"--drain-timeout", "soon"}, "soon"},
      {{"--config", file}, "sockte"},
      {{"--config", "/no/such/file"}, "/no/such/file"},
      {{"--socket", "/tmp/" + std::string(120, 'a')}, "1 to 107"},
      {{"--socket", "/a/s", "--socket", "/b/s"}, "2 times"},
  };
  for (const auto& [arguments, text] : bad) {
    const ParsedConfig p = Parse(arguments);
    EXPECT_EQ(p.exit_code, 78) << arguments[0];
    EXPECT_THAT(p.text, HasSubstr(text));
  }
  EXPECT_EQ(Parse({"--version"}).exit_code, 0);
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
}

TEST(RootsTest, ResolvesOnlyBeneathWhatTheOperatorNamed) {
  const std::string t = TempDir();
  const auto roots = Roots::Open({{"models", t, false}, {"out", t, true}});
  ASSERT_TRUE(roots.ok()) << roots.status();
  EXPECT_EQ(roots->Resolve("models/a/b", false)->relative, "a/b");
  EXPECT_EQ(roots->Resolve("models", false)->relative, ".");
  EXPECT_EQ(roots->Resolve("out/x/", true)->relative, "x");
  EXPECT_EQ(ReasonOf(roots->Resolve("models/a", true).status()), "READ_ONLY_ROOT");
  EXPECT_EQ(ReasonOf(roots->Resolve("other/a", false).status()), "UNKNOWN_ROOT");
  for (absl::string_view bad : {"", "/etc/passwd", "models/../x", "models/..", "models//x"})
    EXPECT_EQ(ReasonOf(roots->Resolve(bad, false).status()), "BAD_PATH") << bad;
  EXPECT_EQ(ReasonOf(roots->Resolve(absl::string_view("models/a\0b", 10), false).status()),
            "BAD_PATH");
  EXPECT_EQ(ReasonOf(roots->Resolve("models/" + std::string(5000, 'a'), false).status()),
            "BAD_PATH");
  EXPECT_THAT(std::string(Roots::Open({{"m", t + "/none", false}}).status().message()),
              HasSubstr("root m"));
}

TEST(SessionsTest, TokensAreSecretAndLimited) {
  Sessions sessions(2);
  const auto a = sessions.Begin(::getpid(), 0), b = sessions.Begin(0, 7);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->token.size(), 32u);
  EXPECT_NE(a->token, b->token);
  EXPECT_EQ(ReasonOf(sessions.Begin(0, 0).status()), "TOO_MANY_SESSIONS");
  EXPECT_EQ(ReasonOf(sessions.Find("").status()), "NO_SESSION");
  EXPECT_EQ(ReasonOf(sessions.Find(std::string(64, '0')).status()), "NO_SESSION");
  sessions.End(a->session.id);
  sessions.End(a->session.id);
  EXPECT_EQ(sessions.count(), 1u);
}

TEST(LockFileTest, OneHolderNamedAndGoneAtTheEnd) {
  const std::string path = TempDir() + "/lock";
  {
    const auto first = LockFile::Acquire(path);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = LockFile::Acquire(path);
    EXPECT_TRUE(absl::IsAlreadyExists(second.status()));
    EXPECT_THAT(std::string(second.status().message()),
                HasSubstr("pid " + std::to_string(::getpid())));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  // A dead holder's file is no obstacle.
  std::ofstream(path) << "12345\n";
  EXPECT_TRUE(LockFile::Acquire(path).ok());
}

glyd::v1::Job MakeJob(const std::string& id) {
  glyd::v1::Job j;
  j.set_id(id);
  j.set_request_id("request-" + id);
  j.mutable_spec()->mutable_verify()->set_path("models/" + id);
  j.set_state(glyd::v1::JOB_STATE_QUEUED);
  return j;
}

std::vector<Journal::Recovered> RecoverFrom(const std::string& path,
                                            std::vector<std::string>* notes) {
  auto journal = Journal::Open(path, notes);
  EXPECT_TRUE(journal.ok()) << journal.status();
  auto found = (*journal)->Recover();
  EXPECT_TRUE(found.ok()) << found.status();
  return *std::move(found);
}

TEST(JournalTest, KeepsJobsOverARestart) {
  const std::string path = TempDir() + "/jobs.db";
  std::vector<std::string> notes;
  {
    auto journal = Journal::Open(path, &notes);
    ASSERT_TRUE(journal.ok()) << journal.status();
    for (uint64_t n = 1; n <= 3; ++n)
      ASSERT_TRUE((*journal)->Put(n, MakeJob(std::to_string(n))).ok());
    glyd::v1::Job changed = MakeJob("2");
    changed.set_state(glyd::v1::JOB_STATE_RUNNING);
    ASSERT_TRUE((*journal)->Put(2, changed).ok());
    ASSERT_TRUE((*journal)->Forget(3).ok());
  }
  const auto found = RecoverFrom(path, &notes);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].job.spec().verify().path(), "models/1");
  EXPECT_EQ(found[1].job.state(), glyd::v1::JOB_STATE_RUNNING);
  EXPECT_TRUE(notes.empty());
}

// Every byte of a small journal flipped, one at a time: it opens, and a job is given out whole, as
// damaged, or with the whole file put aside; never with other bytes.
TEST(JournalTest, OneFlippedByteNeverLies) {
  const std::string dir = TempDir(), path = dir + "/jobs.db";
  std::vector<std::string> notes;
  {
    auto journal = Journal::Open(path, &notes);
    ASSERT_TRUE(journal.ok());
    for (uint64_t n = 1; n <= 2; ++n)
      ASSERT_TRUE((*journal)->Put(n, MakeJob(std::to_string(n))).ok());
  }
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(good.size(), 4096u);
  const std::string want[] = {MakeJob("1").SerializeAsString(), MakeJob("2").SerializeAsString()};
  int whole = 0, damaged = 0, aside = 0;
  for (size_t at = 0; at < good.size(); at += at < 200 ? 1 : 61) {
    const std::string copy = dir + "/copy.db";
    for (const auto& e : std::filesystem::directory_iterator(dir))
      if (e.path() != path) std::filesystem::remove(e.path());
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    std::ofstream(copy, std::ios::binary) << bytes;
    std::vector<std::string> notes_of;
    auto journal = Journal::Open(copy, &notes_of);
    ASSERT_TRUE(journal.ok()) << at << ": " << journal.status();
    const auto found = (*journal)->Recover();
    ASSERT_TRUE(found.ok()) << at << ": " << found.status();
    aside += !notes_of.empty();
    for (const auto& r : *found) {
      damaged += r.damaged;
      if (r.damaged) continue;
      ++whole;
      ASSERT_TRUE(r.number == 1 || r.number == 2) << at;
      EXPECT_EQ(r.job.SerializeAsString(), want[r.number - 1]) << at;
    }
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(aside + damaged, 0);
}

TEST(MemoryBudgetTest, TakesWhatFits) {
  MemoryBudget b;
  b.set_limit(100);
  EXPECT_TRUE(b.Take(60));
  EXPECT_FALSE(b.Take(41));
  EXPECT_FALSE(b.Take(~uint64_t{0}));
  EXPECT_TRUE(b.Take(40));
  b.Give(60);
  EXPECT_EQ(b.free(), 60u);
}

}  // namespace
}  // namespace glyd
