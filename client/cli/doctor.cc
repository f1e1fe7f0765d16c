#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/reason.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "client/cli/cli.h"
#include "client/cli/command.h"
#include "client/cli/json.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "glyd/status.h"
#include "kernels/host/target.h"

namespace glyd::cli {
namespace {

enum class Verdict { kGood, kNote, kBad };

struct Finding {
  std::string what;
  Verdict verdict;
  std::string detail;
  std::string fix;  // what to do; empty where nothing is to be done
};

class Report {
 public:
  void Good(absl::string_view what, absl::string_view detail) {
    Add(what, Verdict::kGood, detail, "");
  }
  void Note(absl::string_view what, absl::string_view detail, absl::string_view fix) {
    Add(what, Verdict::kNote, detail, fix);
  }
  void Bad(absl::string_view what, absl::string_view detail, absl::string_view fix) {
    Add(what, Verdict::kBad, detail, fix);
  }
  const std::vector<Finding>& findings() const { return findings_; }

 private:
  void Add(absl::string_view what, Verdict v, absl::string_view detail, absl::string_view fix) {
    findings_.push_back({std::string(what), v, std::string(detail), std::string(fix)});
  }
  std::vector<Finding> findings_;
};

void CheckProcessor(Report& r) {
  const std::string target(HostTargetName(ChosenTarget()));
  if (target == "scalar")
    r.Note("processor", "plain loops: neither AVX2 nor the AVX-512 that is used here",
           "packing and products are several times slower than on a processor with AVX2");
  else
    r.Good("processor", absl::StrCat("code for ", target));
}

void CheckDriver(Report& r) {
  void* cuda = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (cuda == nullptr) {
    r.Good("GPU driver", "none: the host device serves");
    return;
  }
  ::dlclose(cuda);
  r.Note("GPU driver", "found, and not used", "this release serves from the host's memory alone");
}

// A small model's memory, made, filled, sealed and mapped as the device does it.
void CheckSharedMemory(Report& r) {
  constexpr size_t kBytes = size_t{2} << 20;
  const UniqueFd fd(::memfd_create("glyd-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const char* step = "memfd_create";
  bool good = static_cast<bool>(fd);
  if (good) step = "fallocate", good = ::fallocate(fd.get(), 0, 0, kBytes) == 0;
  if (good)
    step = "sealing",
    good = ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0;
  void* p = MAP_FAILED;
  if (good)
    step = "mapping", p = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd.get(), 0),
    good = p != MAP_FAILED;
  if (p != MAP_FAILED) ::munmap(p, kBytes);
  if (good)
    r.Good("shared memory", "sealed memory files work (they are not bound by /dev/shm's size)");
  else
    r.Bad(
        "shared memory", absl::StrCat(step, ": ", std::strerror(errno)),
        "allow memfd_create and its seals: a seccomp profile or a full memory cgroup forbids them");
}

void CheckKernel(Report& r) {
  open_how how = {};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH;
  const UniqueFd beneath(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how)));
  if (beneath)
    r.Good("openat2", "paths are kept beneath their roots");
  else
    r.Bad("openat2", std::strerror(errno),
          "it needs Linux 5.6, and a seccomp profile that allows openat2");
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (process)
    r.Good("pidfd", "a dead client's lease ends, whoever holds its socket");
  else
    r.Note("pidfd", std::strerror(errno),
           "a lease then ends with its connection alone: allow pidfd_open (Linux 5.3)");
  const long landlock = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1 /* the version */);
  if (landlock >= 1)
    r.Good("Landlock", absl::StrCat("version ", landlock, ": workers see their roots alone"));
  else
    r.Note("Landlock", "not there",
           "workers see what their user sees: Linux 5.13 with landlock in lsm= would change that");
  if (::prctl(PR_GET_SECCOMP) >= 0)
    r.Good("seccomp", "workers give up sockets, programs and processes");
  else
    r.Note("seccomp", "not there", "a kernel with CONFIG_SECCOMP_FILTER confines workers");
}

std::string Limit(rlim_t n) { return n == RLIM_INFINITY ? "unlimited" : absl::StrCat(n); }

void CheckLimits(Report& r) {
  constexpr rlim_t kEnoughFiles =
      2 * 1024 + 300;  // docs/operating.md, "Memory": for --max-clients as it comes
  rlimit files;
  ::getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= kEnoughFiles)
    r.Good("nofile", Limit(files.rlim_cur));
  else
    r.Note("nofile", absl::StrCat(Limit(files.rlim_cur), ", 1024 clients take ", kEnoughFiles),
           absl::StrCat("ulimit -n ", kEnoughFiles, " (hard limit ", Limit(files.rlim_max),
                        "), or LimitNOFILE="));
  rlimit locked;
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  r.Good("memlock", absl::StrCat(Limit(locked.rlim_cur), " (the host device locks nothing)"));
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (!absl::StartsWith(line, "MemAvailable:")) continue;
    const uint64_t bytes = std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
    r.Good("memory", absl::StrCat(HumanBytes(bytes), " available"));
  }
}

void CheckSocket(Report& r, const std::string& server) {
  absl::string_view path = server;
  if (!absl::ConsumePrefix(&path, "unix:")) return;
  struct stat st;
  const std::string socket(path), directory = socket.substr(0, socket.rfind('/') + 1);
  if (::stat(directory.c_str(), &st) != 0)
    r.Note("socket", absl::StrCat(Printable(directory), ": ", std::strerror(errno)),
           "glydd makes it at its start");
  else if ((st.st_mode & 0022) != 0 && (st.st_mode & S_ISVTX) == 0)
    r.Bad("socket",
          absl::StrCat(Printable(directory),
                       " may be written to by others: they can replace the socket"),
          absl::StrCat("chmod go-w ", Printable(directory)));
  else
    r.Good("socket", Printable(socket));
}

void CheckDaemon(Report& r, const Cli& cli) {
  const absl::StatusOr<Client> client = cli.Connect();
  if (!client.ok()) {
    const bool absent = ReasonOf(client.status()) == kReasonNoDaemon;
    r.Bad("daemon", client.status().message(),
          absent ? "start it: glydd --root models=DIR" : "ask whoever runs it for --allow-uid");
    return;
  }
  CheckSocket(r, client->server());
  const absl::StatusOr<DaemonInfo> info = client->Info();
  if (!info.ok()) {
    r.Bad("daemon", info.status().message(), "look at its log");
    return;
  }
  if (info->version == kVersion)
    r.Good("daemon", absl::StrCat("glydd ", Printable(info->version), ", pid ", info->pid));
  else
    r.Note("daemon", absl::StrCat("glydd ", Printable(info->version), ", this glyd is ", kVersion),
           "use programs of one release");
  for (const DeviceStatus& d : info->devices) {
    const std::string what = absl::StrCat("device ", Printable(d.name));
    if (d.worker_pid == 0)
      r.Bad(what, absl::StrCat("down: ", Printable(d.error)),
            "look at the daemon's log; it is tried again by itself");
    else if (d.worker_restarts > 0)
      r.Note(what, absl::StrCat("its worker was started again ", Plural(d.worker_restarts, "time")),
             "the daemon's log says how it ended");
    else
      r.Good(what,
             absl::StrCat(HumanBytes(d.used_bytes), " of ", HumanBytes(d.budget_bytes), " in use"));
    if (d.total_bytes < d.budget_bytes)
      r.Bad(what,
            absl::StrCat("budget ", HumanBytes(d.budget_bytes), ", memory ",
                         HumanBytes(d.total_bytes)),
            "a smaller --budget");
  }
  if (info->roots.empty())
    r.Note("roots", "none: nothing can be loaded or packed by the daemon",
           "--root NAME=DIR, with :rw to write");
  for (const RootInfo& root : info->roots)
    r.Good(absl::StrCat("root ", Printable(root.name)),
           absl::StrCat(Printable(root.directory), root.writable ? ", read and write" : ", read"));
}

absl::Status Run(const Cli& cli) {
  Report r;
  CheckProcessor(r);
  CheckDriver(r);
  CheckSharedMemory(r);
  CheckKernel(r);
  CheckLimits(r);
  CheckDaemon(r, cli);
  static constexpr const char* kVerdicts[] = {"ok", "note", "bad"};
  size_t bad = 0;
  Json all = Json::array();
  std::string text;
  for (const Finding& f : r.findings()) {
    bad += f.verdict == Verdict::kBad;
    const char* verdict = kVerdicts[static_cast<int>(f.verdict)];
    all.push_back({{"what", f.what}, {"verdict", verdict}, {"detail", f.detail}, {"fix", f.fix}});
    absl::StrAppend(&text, absl::StrCat(verdict, "    ").substr(0, 6), f.what, ": ", f.detail,
                    "\n");
    if (!f.fix.empty()) absl::StrAppend(&text, "      -> ", f.fix, "\n");
  }
  if (cli.json)
    cli.PrintJson({{"findings", all}});
  else
    cli.Print(text);
  if (bad == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(Plural(bad, "finding"), " to mend"));
}

}  // namespace

void AddDoctor(Command& root, Cli& cli) {
  root.AddVerb("doctor", "what this machine and the daemon lack, and how to mend it").Run([&cli] {
    return Run(cli);
  });
}

}  // namespace glyd::cli
