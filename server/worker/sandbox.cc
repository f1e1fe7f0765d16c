#include "server/worker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/unique_fd.h"

namespace glyd {
namespace {

// ioprio_set's own numbers: the header that has them is not installed everywhere.
constexpr int kIoPrioWhoProcess = 1, kIoPrioBestEffort = 2, kIoPrioShift = 13, kIoPrioLowest = 7;

constexpr uint64_t kReadAccess = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kWriteAccess = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                  LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                  LANDLOCK_ACCESS_FS_MAKE_REG;

enum class Presence { kMustBe, kMayBe };

bool AllowBeneath(int ruleset, const std::string& path, uint64_t access, Presence presence) {
  const UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd) return presence == Presence::kMayBe;
  struct stat st;
  // A file takes no rights that are a directory's.
  if (::fstat(fd.get(), &st) != 0) return false;
  if (!S_ISDIR(st.st_mode)) access &= LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = access;
  rule.parent_fd = fd.get();
  return ::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
}

bool EnterLandlock(const SandboxOptions& options) {
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) return false;
  // Renaming a directory into another needs REFER, which the second version brought; here it stays
  // in its parent.
  const uint64_t refer = abi >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0;
  landlock_ruleset_attr attributes = {};
  attributes.handled_access_fs = kReadAccess | kWriteAccess | refer | LANDLOCK_ACCESS_FS_EXECUTE |
                                 LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                                 LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                                 LANDLOCK_ACCESS_FS_MAKE_SYM;
  const UniqueFd ruleset(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0)));
  if (!ruleset) return false;
  // What the machine is: processors, memory, the limits of this process.
  for (const char* facts :
       {"/proc/cpuinfo", "/proc/meminfo", "/proc/self", "/sys/fs/cgroup", "/sys/devices/system"})
    if (!AllowBeneath(ruleset.get(), facts, kReadAccess, Presence::kMayBe)) return false;
  for (const std::string& d : options.read)
    if (!AllowBeneath(ruleset.get(), d, kReadAccess, Presence::kMustBe)) return false;
  for (const std::string& d : options.write)
    if (!AllowBeneath(ruleset.get(), d, kReadAccess | kWriteAccess | refer, Presence::kMustBe))
      return false;
  return ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) == 0;
}

bool EnterSeccomp() {
  // What a worker has no business with, and a hostile file would like. Named, not all else allowed
  // by name: the C++ runtime, OpenMP and allocators use calls that differ from version to version.
  constexpr const char* kDenied[] = {
      "socket",
      "socketpair",
      "connect",
      "bind",
      "listen",
      "accept",
      "accept4",
      "execve",
      "execveat",
      "fork",
      "vfork",
      "ptrace",
      "mount",
      "umount2",
      "pivot_root",
      "chroot",
      "setns",
      "unshare",
      "bpf",
      "perf_event_open",
      "init_module",
      "finit_module",
      "delete_module",
      "kexec_load",
      "reboot",
      "swapon",
      "swapoff",
      "keyctl",
      "add_key",
      "request_key",
      "userfaultfd",
      "io_uring_setup",
      "process_vm_readv",
      "process_vm_writev",
      "open_by_handle_at",
      "name_to_handle_at",
      "setuid",
      "setgid",
      "setresuid",
      "setresgid",
      "capset",
      "acct",
      "quotactl",
      "personality",
      "pidfd_getfd",
      "pidfd_open",
      "kcmp",
  };
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == nullptr) return false;
  bool good = true;
  for (const char* name : kDenied) {
    const int number = seccomp_syscall_resolve_name(name);
    // A call this machine's kernel does not have needs no rule.
    if (number != __NR_SCMP_ERROR)
      good &= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0) == 0;
  }
  // A process of its own is denied, a thread is not. clone3's flags lie in memory where no filter
  // sees them: the C library falls back to clone where it is told that there is no clone3.
  good &= seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
  constexpr unsigned long kCloneThread = 0x00010000;
  good &= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                           SCMP_A0(SCMP_CMP_MASKED_EQ, kCloneThread, 0)) == 0;
  // Signals go to nobody else.
  good &= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(kill), 1,
                           SCMP_A0(SCMP_CMP_NE, static_cast<scmp_datum_t>(::getpid()))) == 0;
  good = good && seccomp_load(filter) == 0;
  seccomp_release(filter);
  return good;
}

}  // namespace

namespace {

// For good; a limit that is lower already stays.
void Limit(int resource, rlim_t most) {
  rlimit now;
  if (::getrlimit(resource, &now) != 0) return;
  const rlimit limit = {std::min(now.rlim_cur, most), std::min(now.rlim_max, most)};
  ::setrlimit(resource, &limit);
}

}  // namespace

std::string EnterSandbox(const SandboxOptions& options) {
  std::string held;
  const auto note = [&held](bool took_hold, const char* what) {
    if (took_hold) held += held.empty() ? what : std::string(" ") + what;
  };
  if (options.low_priority) {
    ::setpriority(PRIO_PROCESS, 0, 10);
    ::syscall(SYS_ioprio_set, kIoPrioWhoProcess, 0,
              kIoPrioBestEffort << kIoPrioShift | kIoPrioLowest);
  }
  Limit(RLIMIT_CORE, 0);
  if (options.memory_bytes > 0) Limit(RLIMIT_DATA, options.memory_bytes);
  if (options.open_files > 0) Limit(RLIMIT_NOFILE, options.open_files);
  note(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no-new-privs");
  note(EnterLandlock(options), "landlock");
  note(EnterSeccomp(), "seccomp");
  return held;
}

}  // namespace glyd
