// A daemon through thousands of clients, loads and deaths. Each TEST runs in a process of its own
// and forks its clients, so what it forks from must never have used gRPC: it asks the daemon by the
// command line, and reads /proc.
//
// GLYD_SOAK_PART (1) scales the counts and times: 0.01 makes a quick try.

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/sha256.h"
#include "glyd/client.h"
#include "glyd/linear.h"
#include "packer/testing/fixtures.h"
#include "tests/e2e/daemon.h"

namespace glyd {
namespace {

constexpr char kPack[] = "model.layers.0.mlp.gate_proj";

double Part() {
  const char* text = std::getenv("GLYD_SOAK_PART");
  double part = 1;
  return text != nullptr && absl::SimpleAtod(text, &part) ? part : 1;
}
int Scaled(int n) { return std::max(1, static_cast<int>(n * Part())); }

// A "Name: 12 kB" line of a file in /proc.
int64_t ProcNumber(const std::string& file, const std::string& name) {
  for (absl::string_view line : absl::StrSplit(testing::ReadFile(file), '\n')) {
    if (!absl::StartsWith(line, absl::StrCat(name, ":"))) continue;
    int64_t n = 0;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() > 1 && absl::SimpleAtoi(words[1], &n)) return n;
  }
  return -1;
}

// What a leak would raise, of one process.
struct Footprint {
  int64_t rss_kb = 0, threads = 0, fds = 0, shared_maps = 0;
};

Footprint Of(pid_t pid) {
  const std::string proc = absl::StrCat("/proc/", pid);
  Footprint f;
  f.rss_kb = ProcNumber(proc + "/status", "VmRSS") - ProcNumber(proc + "/status", "RssShmem");
  f.threads = ProcNumber(proc + "/status", "Threads");
  f.fds = OpenFds(pid);
  for (absl::string_view line : absl::StrSplit(testing::ReadFile(proc + "/maps"), '\n'))
    f.shared_maps += absl::StrContains(line, "/memfd:");
  return f;
}

void Say(const std::string& what, const Footprint& f) {
  std::printf("%-32s %7.1f MB rss  %3d threads  %4d fds  %3d shared maps\n", what.c_str(),
              static_cast<double>(f.rss_kb) / 1024, static_cast<int>(f.threads),
              static_cast<int>(f.fds), static_cast<int>(f.shared_maps));
  std::fflush(stdout);
}

class SoakTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(RunProgram("glyd", {"-q", "pack", testing::CheckpointCases() + "/llama-biases",
                                  dir_ / "save"})
                  .code,
              0);
    daemon_ = std::make_unique<DaemonProcess>(
        dir_.path(), std::vector<std::string>{"--root", absl::StrCat("m=", dir_.path())});
    ASSERT_TRUE(daemon_->ready()) << daemon_->process().err();
    pid_ = daemon_->process().pid();
  }

  Finished Glyd(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", daemon_->server()});
    return RunProgram("glyd", arguments);
  }
  void Load(const std::string& name) {
    const Finished f = Glyd({"load", name, "m/save", "--wait"});
    ASSERT_EQ(f.code, 0) << f.err;
  }
  bool NoLeases() { return absl::StrContains(Glyd({"info", "-o", "json"}).out, "\"leases\": 0"); }

  absl::StatusOr<Client> Connect() {
    ConnectOptions options;
    options.server = daemon_->server();
    return Client::Connect(options);
  }

  TempDir dir_;
  std::unique_ptr<DaemonProcess> daemon_;
  pid_t pid_ = -1;
};

TEST_F(SoakTest, ClientsKilledWithTheirLeaseLeaveNothing) {
  ASSERT_NO_FATAL_FAILURE(Load("a"));
  const int cycles = Scaled(10000), warm = std::max(1, cycles / 10);
  Footprint first, worker_first;
  for (int i = 1; i <= cycles; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto client = Connect();
      if (!client.ok()) ::_exit(1);
      const auto model = client->Attach("a");
      if (!model.ok()) ::_exit(2);
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "client " << i << " failed, code " << WEXITSTATUS(status);
    if (i == warm) {
      ASSERT_TRUE(Eventually([&] { return NoLeases(); }));
      first = Of(pid_);
      worker_first = Of(ChildOf(pid_));
      Say(absl::StrCat("glydd after ", i), first);
    }
  }
  EXPECT_TRUE(Eventually([&] { return NoLeases(); }, absl::Seconds(1)));
  const Footprint last = Of(pid_), worker_last = Of(ChildOf(pid_));
  Say(absl::StrCat("glydd after ", cycles), last);
  Say("its worker", worker_last);
  EXPECT_LT(last.rss_kb - first.rss_kb, 2048);
  EXPECT_LE(last.threads, first.threads);
  EXPECT_LE(last.fds, first.fds);
  EXPECT_LE(last.shared_maps, first.shared_maps);
  EXPECT_LE(worker_last.fds, worker_first.fds);
  EXPECT_LT(worker_last.rss_kb - worker_first.rss_kb, 2048);
}

TEST_F(SoakTest, LoadsAndUnloadsGiveAllMemoryBack) {
  const auto client = Connect();
  ASSERT_TRUE(client.ok()) << client.status();
  const int cycles = Scaled(1000), warm = std::max(1, cycles / 10);
  const pid_t worker = ChildOf(pid_);
  const Footprint start = Of(worker);
  Footprint first;
  for (int i = 1; i <= cycles; ++i) {
    LoadOptions load;
    load.name = absl::StrCat("m", i);
    load.path = "m/save";
    ASSERT_TRUE(client->Load(load).ok());
    const auto ready = client->WaitUntilLoaded(load.name);
    ASSERT_TRUE(ready.ok()) << ready.status();
    {
      const auto model = client->Attach(load.name);
      ASSERT_TRUE(model.ok()) << model.status();
      const auto info = client->Info();
      ASSERT_TRUE(info.ok()) << info.status();
      ASSERT_EQ(info->devices.at(0).used_bytes, ready->allocation_bytes);
    }
    ASSERT_TRUE(client->Unload(load.name).ok());
    ASSERT_TRUE(Eventually([&] {
      const auto info = client->Info();
      return info.ok() && info->devices.at(0).used_bytes == 0;
    })) << i;
    if (i == warm) {
      first = Of(pid_);
      Say(absl::StrCat("glydd after ", i), first);
    }
  }
  ASSERT_TRUE(Eventually([&] { return Of(worker).shared_maps <= start.shared_maps; }));
  const Footprint last = Of(pid_);
  Say(absl::StrCat("glydd after ", cycles), last);
  Say("its worker", Of(worker));
  EXPECT_LT(last.rss_kb - first.rss_kb, 2048);
  EXPECT_LE(last.fds, first.fds);
  EXPECT_LE(Of(worker).fds, start.fds);
  EXPECT_EQ(ChildOf(pid_), worker);
}

// What clients and their parent share: memory that outlives a kill.
struct Shared {
  static constexpr int kClients = 200, kKills = 4096;
  std::atomic<bool> stop{false};
  std::atomic<int> kills{0};
  std::atomic<int64_t> killed_at[kKills] = {};  // of a worker, ns
  struct Slot {
    std::atomic<int64_t> since{0};  // of the call at hand, 0: none
    std::atomic<int64_t> calls{0}, excused{0};
    std::atomic<bool> bad{false};
    char text[256] = {};
  } slots[kClients];

  // A call that a worker's death was in, or the time in which the next one starts.
  bool Explains(int64_t start, int64_t end) const {
    const int n = std::min(kills.load(), kKills);
    for (int i = 0; i < n; ++i) {
      const int64_t at = killed_at[i];
      if (at <= end && at + absl::ToInt64Nanoseconds(absl::Seconds(5)) >= start) return true;
    }
    return false;
  }
};

int64_t Now() { return absl::GetCurrentTimeNanos(); }

absl::Status OneCall(const Client& client, std::mt19937& random) {
  switch (random() % 6) {
    case 0:
      return client.List().status();
    case 1:
      return client.Info().status();
    case 2:
      return client.Get("a").status();
    case 3:
      return client.GetContents("a").status();
    default:
      break;
  }
  absl::StatusOr<Model> model = client.Attach("a");
  if (!model.ok()) return model.status();
  if (random() % 2 == 0) {
    const ModelTensor& t = model->tensors()[random() % model->tensors().size()];
    Sha256 sha;
    sha.Update(t.bytes.data(), t.bytes.size());
    if (sha.Finish() != t.sha256) return absl::DataLossError(t.name);
    return std::move(*model).Release();
  }
  const ModelPack* pack = model->FindPack(kPack);
  if (pack == nullptr) return absl::NotFoundError(kPack);
  std::vector<uint16_t> x(pack->cols, 0x3F80), y(pack->rows), here(pack->rows);
  if (absl::Status s = LinearByDaemon(*model, kPack, 1, x, absl::MakeSpan(y)).status(); !s.ok())
    return s;
  if (absl::Status s = LinearInProcess(*pack, x, 1, {}, absl::MakeSpan(here), 1); !s.ok()) return s;
  if (y != here) return absl::DataLossError("the daemon's product is another");
  return absl::OkStatus();
}

// A client's whole life.
void Live(const absl::StatusOr<Client>& client, Shared& shared, Shared::Slot& slot, uint32_t seed) {
  std::mt19937 random(seed);
  while (!shared.stop) {
    const int64_t start = Now();
    slot.since = start;
    const absl::Status s = client.ok() ? OneCall(*client, random) : client.status();
    slot.since = 0;
    ++slot.calls;
    if (s.ok()) continue;
    if (shared.Explains(start, Now())) {
      ++slot.excused;
      absl::SleepFor(absl::Milliseconds(100));
      if (!client.ok()) return;
      continue;
    }
    std::snprintf(slot.text, sizeof slot.text, "%s", s.ToString().c_str());
    slot.bad = true;
    return;
  }
}

TEST_F(SoakTest, TwoHundredClientsAndKillsOfAnyone) {
  ASSERT_NO_FATAL_FAILURE(Load("a"));
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Shared& shared = *new (memory) Shared;
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const Footprint start = Of(pid_);
  std::vector<pid_t> pids(Shared::kClients);
  const auto spawn = [&](int i) {
    const uint32_t own = static_cast<uint32_t>(random());
    pids[static_cast<size_t>(i)] = ::fork();
    if (pids[static_cast<size_t>(i)] != 0) return;
    Live(Connect(), shared, shared.slots[i], own);
    ::_exit(0);
  };
  for (int i = 0; i < Shared::kClients; ++i) spawn(i);
  const absl::Time end = absl::Now() + absl::Seconds(60) * Part();
  int killed = 0;
  absl::Time next_worker = absl::Now() + absl::Seconds(5) * std::min(1.0, Part() * 10);
  int64_t longest = 0;
  while (absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(100));
    const int i = static_cast<int>(random() % Shared::kClients);
    // A client that was killed in a call says nothing of the daemon.
    ::kill(pids[static_cast<size_t>(i)], SIGKILL);
    int status = 0;
    ::waitpid(pids[static_cast<size_t>(i)], &status, 0);
    EXPECT_FALSE(WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        << "client " << i << " crashed, signal " << WTERMSIG(status);
    shared.slots[i].since = 0;
    ++killed;
    if (shared.slots[i].bad) break;
    spawn(i);
    if (absl::Now() > next_worker) {
      const int n = shared.kills;
      const pid_t worker = ChildOf(pid_);
      shared.killed_at[n % Shared::kKills] = Now();
      ++shared.kills;
      if (worker > 0) ::kill(worker, SIGKILL);
      next_worker = absl::Now() + absl::Seconds(8);
    }
    for (const Shared::Slot& s : shared.slots) {
      const int64_t since = s.since;
      if (since != 0) longest = std::max(longest, Now() - since);
    }
  }
  shared.stop = true;
  // A hang would show here: a call takes 30 s at most, its deadline.
  for (pid_t pid : pids) {
    int status = 0;
    EXPECT_TRUE(
        Eventually([&] { return ::waitpid(pid, &status, WNOHANG) != 0; }, absl::Seconds(40)));
    EXPECT_FALSE(WIFSIGNALED(status)) << "a client crashed, signal " << WTERMSIG(status);
  }
  int64_t calls = 0, excused = 0;
  for (const Shared::Slot& s : shared.slots) {
    calls += s.calls;
    excused += s.excused;
    EXPECT_FALSE(s.bad) << s.text;
  }
  std::printf(
      "%d calls, %d failed beside a worker's death; %d clients and %d workers killed; "
      "longest call seen %.2f s\n",
      static_cast<int>(calls), static_cast<int>(excused), killed, shared.kills.load(),
      static_cast<double>(longest) / 1e9);
  EXPECT_GT(calls, 100 * Part());
  EXPECT_TRUE(Eventually([&] { return NoLeases(); }, absl::Seconds(5)));
  EXPECT_TRUE(daemon_->process().running()) << daemon_->process().err();
  EXPECT_TRUE(Eventually([&] { return Glyd({"health"}).code == 0; }, absl::Seconds(40)));
  EXPECT_TRUE(Eventually([&] { return Of(pid_).fds <= start.fds + 2; }));
  Say("glydd at the start", start);
  Say("glydd at the end", Of(pid_));
}

TEST_F(SoakTest, IdleItSleeps) {
  ASSERT_NO_FATAL_FAILURE(Load("a"));
  // gRPC's threads, which have names of their own, look around once a second and more by
  // themselves; the daemon's own wait for what happens, and ping the worker.
  const auto wakes = [&](bool own) {
    int64_t n = 0;
    const std::string tasks = absl::StrCat("/proc/", pid_, "/task");
    for (const std::string& task : testing::ListDir(tasks))
      if (own == (testing::ReadFile(tasks + "/" + task + "/comm") == "glydd\n"))
        n += ProcNumber(tasks + "/" + task + "/status", "voluntary_ctxt_switches");
    return n;
  };
  absl::SleepFor(absl::Seconds(3));
  const int seconds = std::max(5, Scaled(30));
  const int64_t own = wakes(true), grpc = wakes(false);
  absl::SleepFor(absl::Seconds(seconds));
  const double rate = static_cast<double>(wakes(true) - own) / seconds;
  Say("glydd idle", Of(pid_));
  std::printf("%.2f wake-ups a second of its own threads, %.2f of gRPC's\n", rate,
              static_cast<double>(wakes(false) - grpc) / seconds);
  EXPECT_LE(rate, 1.0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(Of(pid_).rss_kb, 30 * 1024);
#endif
}

}  // namespace
}  // namespace glyd
