#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "glyd/client.h"
#include "packer/testing/fixtures.h"
#include "tests/e2e/daemon.h"

// glyd-bench-daemon: a daemon of its own with two models of 400 tensors, one 50 times as large as
// the other: the time of Attach, List and `glyd ps`, alone and beside 1,000 sessions that hold a
// lease each; the time from its start to SERVING; and how long a client that stays attached is
// without a lease when another daemon takes the place of its own. An empty call (Info) is the
// floor.

namespace glyd {
namespace {

constexpr int kOthers = 1000, kTensors = 400;

void Check(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "glyd-bench-daemon: %s\n", what.c_str());
  std::exit(1);
}
void Check(const absl::Status& s) { Check(s.ok(), s.ToString()); }

void MakeSave(const std::string& run, const std::string& name, uint64_t side) {
  std::vector<testing::TestTensor> tensors;
  for (int i = 0; i < kTensors; ++i) {
    testing::TestTensor& t = tensors.emplace_back();
    t.name = absl::StrCat("t.", i, ".weight");
    t.shape = {side, side};
    t.data = testing::Bf16(side * side, static_cast<uint64_t>(i));
  }
  testing::WriteModel(run + "/" + name + "-bf16", tensors);
  PackOptions options;
  options.any = true;
  options.layout = Layout::kMma12;
  Check(testing::Pack(run + "/" + name + "-bf16", run + "/" + name, options).status());
}

Client Connect(const std::string& server) {
  ConnectOptions options;
  options.server = server;
  absl::StatusOr<Client> client = Client::Connect(options);
  Check(client.status());
  return *std::move(client);
}

void Row(
    const std::string& what, int n, const std::function<void()>& f,
    const std::function<void()>& after = [] {}) {
  std::vector<double> ms;
  for (int i = -5; i < n; ++i) {
    const absl::Time start = absl::Now();
    f();
    if (i >= 0) ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
    after();
  }
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double part) {
    return ms[static_cast<size_t>(part * static_cast<double>(ms.size() - 1))];
  };
  std::printf("%-40s %8.2f ms %8.2f ms\n", what.c_str(), at(0.5), at(0.99));
  std::fflush(stdout);
}

// In a process of its own: sessions with a lease each, until it is killed.
pid_t HoldLeases(const std::string& server, int ready) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  std::vector<Client> clients;
  std::vector<Model> models;
  for (int i = 0; i < kOthers; ++i) {
    clients.push_back(Connect(server));
    absl::StatusOr<Model> model = clients.back().Attach("small");
    Check(model.status());
    models.push_back(*std::move(model));
  }
  (void)!::write(ready, "1", 1);
  for (;;) ::pause();
}

void InChild(const std::function<void()>& f) {
  std::fflush(stdout);
  const pid_t pid = ::fork();
  if (pid == 0) {
    f();
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  Check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a measurement failed");
}

double Median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

double Milliseconds(absl::Time since) { return absl::ToDoubleMilliseconds(absl::Now() - since); }

void ColdStarts(const TempDir& dir, int times) {
  std::vector<double> ms;
  for (int i = 0; i < times; ++i) {
    const absl::Time start = absl::Now();
    DaemonProcess daemon(dir.path(), {"--root", absl::StrCat("m=", dir.path())});
    Check(daemon.ready(), daemon.process().err());
    Check(*Connect(daemon.server()).IsServing(), "not serving");
    ms.push_back(Milliseconds(start));
    daemon.process().Signal(SIGTERM);
    Check(daemon.process().Wait() == 0, daemon.process().err());
  }
  std::printf("start to SERVING: %.0f ms, at most %.0f of %d\n", Median(ms),
              *std::max_element(ms.begin(), ms.end()), times);
}

// A client stays attached while its daemon is told to stop and, `away` after its end, another is
// started that loads the same model by itself: from that start to a new lease.
void Upgrades(const TempDir& dir, absl::Duration away, int times) {
  const std::vector<std::string> arguments = {"--root", absl::StrCat("m=", dir.path()), "--preload",
                                              "a=m/small"};
  auto daemon = std::make_unique<DaemonProcess>(dir.path(), arguments);
  const Client client = Connect(daemon->server());
  Check(client.WaitUntilLoaded("a").status());
  const absl::StatusOr<Model> model = client.Attach("a");
  Check(model.status());
  std::vector<double> stop, lease;
  for (int i = 0; i < times; ++i) {
    const std::string before = model->lease_id();
    const absl::Time told = absl::Now();
    daemon->process().Signal(SIGTERM);
    Check(daemon->process().Wait() == 0, daemon->process().err());
    stop.push_back(Milliseconds(told));
    absl::SleepFor(away);
    const absl::Time start = absl::Now();
    daemon = std::make_unique<DaemonProcess>(dir.path(), arguments);
    Check(Eventually([&] { return model->lease_id() != before && model->lease_status().ok(); }),
          "no new lease");
    lease.push_back(Milliseconds(start));
  }
  std::printf(
      "upgrade, %s away: stopped in %.0f ms, from the next start to a new lease %.0f ms, at most "
      "%.0f of %d\n",
      absl::FormatDuration(away).c_str(), Median(stop), Median(lease),
      *std::max_element(lease.begin(), lease.end()), times);
}

int Run(bool starts_alone) {
  rlimit files;
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const TempDir dir;
  MakeSave(dir.path(), "small", 128);
  MakeSave(dir.path(), "large", 896);
  // Whoever uses gRPC does so in a process that was forked by one that never did.
  InChild([&] {
    ColdStarts(dir, 11);
    Upgrades(dir, absl::ZeroDuration(), 11);
    Upgrades(dir, absl::Seconds(3), 7);
  });
  if (starts_alone) return 0;
  DaemonProcess daemon(dir.path(), {"--root", absl::StrCat("m=", dir.path())});
  Check(daemon.ready(), daemon.process().err());
  const std::string server = daemon.server();
  for (const char* name : {"small", "large"})
    Check(RunProgram("glyd", {"--server", server, "load", name, absl::StrCat("m/", name), "--wait"})
                  .code == 0,
          "load");
  int ready[2];
  Check(::pipe(ready) == 0, "pipe");
  std::printf("%-40s %11s %11s\n", "", "p50", "p99");
  const auto rows = [&](const std::string& beside) {
    InChild([&] {
      const Client client = Connect(server);
      Row("empty call" + beside, 500, [&] { Check(client.Info().status()); });
      std::unique_ptr<Model> model;
      for (const char* name : {"small", "large"}) {
        std::string what = absl::StrCat("attach, ", name);
        Row(
            what + beside, 300,
            [&] {
              absl::StatusOr<Model> m = client.Attach(name);
              Check(m.status());
              what = absl::StrCat(m->memory_bytes() >> 20, " MiB");
              model = std::make_unique<Model>(*std::move(m));
            },
            [&] { model.reset(); });
        std::printf("  of %s, %d tensors\n", what.c_str(), kTensors);
      }
      Row("List" + beside, 300, [&] { Check(client.List().status()); });
    });
    const std::string glyd = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "glyd";
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    Row("glyd ps, a process" + beside, 50, [&] {
      const pid_t ps = ::vfork();
      if (ps == 0) {
        ::dup2(nowhere, STDOUT_FILENO);
        ::execl(glyd.c_str(), "glyd", "--server", server.c_str(), "ps", nullptr);
        ::_exit(1);
      }
      int status = 0;
      ::waitpid(ps, &status, 0);
      Check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "ps failed");
    });
    ::close(nowhere);
  };
  rows("");
  const pid_t holder = HoldLeases(server, ready[1]);
  char byte;
  ::close(ready[1]);
  Check(::read(ready[0], &byte, 1) == 1, "the other sessions");
  rows(absl::StrCat(", ", kOthers, " sessions"));
  ::kill(holder, SIGTERM);
  ::waitpid(holder, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace glyd

int main(int argc, char** argv) {
  return glyd::Run(argc == 2 && std::strcmp(argv[1], "starts") == 0);
}
