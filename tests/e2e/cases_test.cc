// The daemon's cases from the field, each named after its row: a real glydd, its workers, and
// clients that die, lie and are in the way. fd storm, second daemon, stale socket, watcher and
// child holds are in daemon_test.cc; the rows of many rounds in cases_slow_test.cc.

#include "tests/e2e/cases.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/socket.h"

namespace glyd {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kOk = grpc::StatusCode::OK;
constexpr int kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr int kNotFound = grpc::StatusCode::NOT_FOUND;

// What a client may send in the place of an id.
std::vector<std::string> BadIds() {
  return {"", "x", std::string(63, 'f'), std::string(65, 'f'), std::string(1 << 20, 'f'),
          std::string("a\0b", 3), "../../etc/passwd",
          // Of this daemon's form, and nobody's.
          "0123456789abcdef-1-0123456789abcdef"};
}

class DaemonCases : public CasesTest {};

// A load reads headers as pack, verify and unpack do.
TEST_F(DaemonCases, Headers) {
  const auto rows = testing::CaseRows("headers.tsv", true);
  for (const auto& row : rows)
    testing::WriteSaveOf(testing::HeaderCases() + "/" + row[0], dir() + "/" + row[0]);
  Start();
  RawClient a(dir());
  int refused = 0;
  for (const auto& row : rows) {
    const v1::Model m = a.LoadAndWait(row[0], "m/" + row[0]);
    const bool good = row[1] == "accept";
    refused += !good;
    EXPECT_EQ(m.state(), good ? v1::MODEL_STATE_READY : v1::MODEL_STATE_FAILED)
        << row[0] << m.error();
    if (!good) {
      EXPECT_THAT(m.error(), HasSubstr("model.safetensors")) << row[0];
    }
  }
  EXPECT_GT(refused, 20);
}

TEST_F(DaemonCases, BadHandle) {
  Start();
  RawClient a(dir()), b(dir());
  ASSERT_EQ(a.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  v1::AttachReply lease;
  ASSERT_TRUE(a.Attach("a", &lease).ok());
  std::vector<std::string> ids = BadIds();
  ids.push_back(lease.lease_id() + "0");
  ids.push_back(lease.lease_id().substr(1));
  const auto none = AnyOf(kInvalid, kNotFound, int{grpc::StatusCode::FAILED_PRECONDITION});
  for (const std::string& id : ids) {
    EXPECT_THAT(int{a.Release(id).error_code()}, none) << id.size();
    v1::LinearRequest r = Product(id);
    v1::LinearReply reply;
    EXPECT_THAT(int{a.Linear(r, &reply).error_code()}, none) << id.size();
    r.set_lease_id(lease.lease_id());
    r.mutable_x_arena()->set_arena_id(id);
    EXPECT_THAT(int{a.Linear(r, &reply).error_code()}, AnyOf(kInvalid, kNotFound)) << id.size();
    v1::ReleaseArenaRequest release;
    release.set_arena_id(id);
    v1::ReleaseArenaReply released;
    EXPECT_THAT(
        int{a.linear->ReleaseArena(Deadline(10, a.token()).get(), release, &released).error_code()},
        AnyOf(kInvalid, kNotFound));
    v1::GetJobRequest job;
    job.set_id(id);
    v1::Job got;
    EXPECT_THAT(int{a.jobs->Get(Deadline().get(), job, &got).error_code()},
                AnyOf(kInvalid, kNotFound));
    // Sessions: a token that is none is no session, of whatever length. Metadata holds no NUL.
    if (id.size() > 1000 || id.find('\0') != std::string::npos) continue;
    v1::AttachRequest attach;
    attach.set_name("a");
    v1::AttachReply granted;
    auto c = Deadline();
    c->AddMetadata("glyd-session", id);
    EXPECT_EQ(a.models->Attach(c.get(), attach, &granted).error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
    v1::BrokerRequest fetch;
    fetch.mutable_fetch()->set_lease_id(id);
    EXPECT_NE(AskBroker(a.broker(), fetch)->code(), 0) << id;
  }
  // Another session's.
  EXPECT_EQ(ReasonIn(b.Release(lease.lease_id())), "NO_LEASE");
  v1::LinearReply reply;
  EXPECT_EQ(ReasonIn(b.Linear(Product(lease.lease_id()), &reply)), "NO_LEASE");
  v1::BrokerRequest fetch;
  fetch.mutable_fetch()->set_lease_id(lease.lease_id());
  EXPECT_EQ(AskBroker(b.broker(), fetch)->reason(), "NO_LEASE");
  EXPECT_TRUE(a.Linear(Product(lease.lease_id()), &reply).ok());
  EXPECT_EQ(a.Info().pid(), daemon().process().pid());
  EXPECT_EQ(a.Info().devices(0).worker_restarts(), 0u);
}

// Eight products that wait for a worker that does not go on, and an unload in their middle.
TEST_F(DaemonCases, UnloadInFlight) {
  Start();
  RawClient holder(dir());
  ASSERT_EQ(holder.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  const auto worker = static_cast<pid_t>(holder.Info().devices(0).worker_pid());
  for (const bool drain : {false, true}) {
    SCOPED_TRACE(drain ? "drain" : "refused");
    v1::AttachReply lease;
    ASSERT_TRUE(holder.Attach("a", &lease).ok());
    ASSERT_EQ(::kill(worker, SIGSTOP), 0);
    std::vector<std::thread> calls;
    std::atomic<int> good{0}, begun{0};
    for (int i = 0; i < 8; ++i)
      calls.emplace_back([&] {
        v1::LinearReply reply;
        ++begun;
        good += holder.Linear(Product(lease.lease_id()), &reply).ok();
      });
    EXPECT_TRUE(Eventually([&] { return begun == 8; }));
    const grpc::Status unload = holder.Unload("a", drain);
    EXPECT_EQ(unload.ok(), drain) << unload.error_message();
    if (drain) {
      EXPECT_EQ(holder.Get("a").state(), v1::MODEL_STATE_DRAINING);
      // Neither loaded anew nor leased while it drains.
      EXPECT_EQ(ReasonIn(holder.Load("a", "m/save")), "NAME_TAKEN");
      v1::AttachReply more;
      EXPECT_EQ(ReasonIn(holder.Attach("a", &more)), "DRAINING");
      // The last lease goes with the calls still in the worker.
      EXPECT_TRUE(holder.Release(lease.lease_id()).ok());
      EXPECT_EQ(holder.Load("a", "m/save").error_code(), kOk);
    }
    ASSERT_EQ(::kill(worker, SIGCONT), 0);
    for (std::thread& t : calls) t.join();
    EXPECT_EQ(good, 8);
    EXPECT_TRUE(Eventually([&] { return holder.Get("a").state() == v1::MODEL_STATE_READY; }));
    if (!drain) {
      EXPECT_TRUE(holder.Release(lease.lease_id()).ok());
    }
  }
  ASSERT_TRUE(holder.Unload("a").ok());
  EXPECT_TRUE(Eventually([&] { return holder.Info().devices(0).used_bytes() == 0; }));
  EXPECT_EQ(holder.Info().devices(0).worker_restarts(), 0u);
}

// The same, and the client that made the calls is gone before they end.
TEST_F(DaemonCases, UnloadInFlightOfADeadClient) {
  Start();
  RawClient other(dir());
  ASSERT_EQ(other.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  const auto worker = static_cast<pid_t>(other.Info().devices(0).worker_pid());
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  {
    RawClient dying(dir());
    v1::AttachReply lease;
    ASSERT_TRUE(dying.Attach("a", &lease).ok());
    std::vector<std::thread> calls;
    for (int i = 0; i < 8; ++i)
      calls.emplace_back([&] {
        v1::LinearReply reply;
        EXPECT_EQ(dying.Linear(Product(lease.lease_id()), &reply, 1).error_code(),
                  grpc::StatusCode::DEADLINE_EXCEEDED);
      });
    for (std::thread& t : calls) t.join();
  }
  EXPECT_TRUE(Eventually([&] { return other.Info().leases() == 0; }));
  EXPECT_TRUE(other.Unload("a").ok());
  EXPECT_TRUE(other.Load("a", "m/save").ok());
  ASSERT_EQ(::kill(worker, SIGCONT), 0);
  EXPECT_TRUE(Eventually([&] { return other.Get("a").state() == v1::MODEL_STATE_READY; }));
  EXPECT_TRUE(Eventually(
      [&] { return other.Info().devices(0).used_bytes() == other.Get("a").allocation_bytes(); }));
}

TEST_F(DaemonCases, SlowFree) {
  StartWithFaults();
  RawClient c(dir());
  ASSERT_EQ(c.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  ASSERT_EQ(c.LoadAndWait("b", "m/other").state(), v1::MODEL_STATE_READY);
  faults().slow_free_seconds = 50;
  ASSERT_TRUE(c.Unload("a").ok());
  ASSERT_TRUE(Eventually([&] { return faults().freeing == 1; }));
  // While that goes on: attaching, products, arenas, loading, and the same name again.
  v1::AttachReply lease;
  ASSERT_TRUE(c.Attach("b", &lease).ok());
  v1::BrokerRequest fetch;
  fetch.mutable_fetch()->set_lease_id(lease.lease_id());
  EXPECT_EQ(AskBroker(c.broker(), fetch)->code(), 0);
  v1::LinearReply reply;
  EXPECT_TRUE(c.Linear(Product(lease.lease_id()), &reply).ok());
  v1::CreateArenaRequest arena;
  arena.set_bytes(1);
  v1::CreateArenaReply created;
  EXPECT_TRUE(c.linear->CreateArena(Deadline(10, c.token()).get(), arena, &created).ok());
  EXPECT_EQ(c.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  EXPECT_TRUE(c.Release(lease.lease_id()).ok());
  EXPECT_GE(faults().freeing, 1) << "the free had ended: nothing was shown";
  EXPECT_EQ(c.Info().devices(0).worker_restarts(), 0u);
  // Nor does it keep the daemon from its end.
  daemon().process().Signal(SIGTERM);
  EXPECT_EQ(daemon().process().Wait(absl::Seconds(20)), 0);
}

TEST_F(DaemonCases, DoubleRelease) {
  Start();
  RawClient a(dir()), b(dir());
  ASSERT_EQ(a.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  v1::AttachReply one, two, again;
  ASSERT_TRUE(a.Attach("a", &one).ok());
  ASSERT_TRUE(b.Attach("a", &two).ok());
  EXPECT_TRUE(a.Release(one.lease_id()).ok());
  EXPECT_EQ(ReasonIn(a.Release(one.lease_id())), "NO_LEASE");
  EXPECT_EQ(ReasonIn(a.Release(two.lease_id())), "NO_LEASE");
  EXPECT_EQ(a.Get("a").leases(), 1u);
  v1::LinearReply reply;
  EXPECT_TRUE(b.Linear(Product(two.lease_id()), &reply).ok());
  EXPECT_EQ(ReasonIn(a.Unload("a")), "IN_USE");
  // Twice at once: one of them is an error.
  ASSERT_TRUE(a.Attach("a", &again).ok());
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { good += a.Release(again.lease_id()).ok(); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 1);
  EXPECT_EQ(a.Get("a").leases(), 1u);
  EXPECT_TRUE(b.Release(two.lease_id()).ok());
  EXPECT_TRUE(a.Unload("a").ok());
  // An arena has one end too.
  v1::CreateArenaRequest create;
  create.set_bytes(1);
  v1::CreateArenaReply arena;
  ASSERT_TRUE(a.linear->CreateArena(Deadline(10, a.token()).get(), create, &arena).ok());
  v1::ReleaseArenaRequest release;
  release.set_arena_id(arena.arena_id());
  v1::ReleaseArenaReply released;
  EXPECT_EQ(ReasonIn(b.linear->ReleaseArena(Deadline(10, b.token()).get(), release, &released)),
            "NO_ARENA");
  EXPECT_TRUE(a.linear->ReleaseArena(Deadline(10, a.token()).get(), release, &released).ok());
  EXPECT_EQ(ReasonIn(a.linear->ReleaseArena(Deadline(10, a.token()).get(), release, &released)),
            "NO_ARENA");
}

TEST_F(DaemonCases, Generation) {
  Start();
  std::string lease, arena, token;
  uint64_t generation;
  {
    RawClient c(dir());
    ASSERT_EQ(c.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
    v1::AttachReply reply;
    ASSERT_TRUE(c.Attach("a", &reply).ok());
    lease = reply.lease_id();
    generation = reply.generation();
    token = c.token();
    v1::CreateArenaRequest create;
    create.set_bytes(1);
    v1::CreateArenaReply created;
    ASSERT_TRUE(c.linear->CreateArena(Deadline(10, token).get(), create, &created).ok());
    arena = created.arena_id();
    daemon().process().Signal(SIGKILL);
    daemon().process().Wait();
  }
  Start();
  RawClient c(dir());
  EXPECT_NE(c.Info().generation(), generation);
  ASSERT_EQ(c.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  v1::LinearReply reply;
  EXPECT_EQ(ReasonIn(c.Release(lease)), "OTHER_GENERATION");
  EXPECT_EQ(ReasonIn(c.Linear(Product(lease), &reply)), "OTHER_GENERATION");
  v1::BrokerRequest fetch;
  fetch.mutable_fetch()->set_lease_id(lease);
  EXPECT_EQ(AskBroker(c.broker(), fetch)->reason(), "OTHER_GENERATION");
  fetch.mutable_fetch()->set_arena_id(arena);
  EXPECT_NE(AskBroker(c.broker(), fetch)->code(), 0);
  v1::AttachRequest attach;
  attach.set_name("a");
  v1::AttachReply granted;
  EXPECT_EQ(ReasonIn(c.models->Attach(Deadline(10, token).get(), attach, &granted)), "NO_SESSION");
}

TEST_F(DaemonCases, Numbers) {
  Start();
  RawClient c(dir());
  ASSERT_EQ(c.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  v1::AttachReply lease;
  ASSERT_TRUE(c.Attach("a", &lease).ok());
  v1::CreateArenaRequest create;
  create.set_bytes(4 << 20);
  v1::CreateArenaReply arena;
  ASSERT_TRUE(c.linear->CreateArena(Deadline(10, c.token()).get(), create, &arena).ok());
  const std::vector<uint64_t> edges = {
      0,         1, uint64_t{1} << 31, (uint64_t{1} << 63) - 1, uint64_t{1} << 63, UINT64_MAX - 15,
      UINT64_MAX};
  for (const uint64_t n : edges) {
    SCOPED_TRACE(n);
    // M: whatever x is, inline or in an arena.
    v1::LinearRequest r = Product(lease.lease_id());
    r.set_m(n);
    v1::LinearReply reply;
    EXPECT_EQ(c.Linear(r, &reply).error_code(), n == 1 ? kOk : kInvalid);
    // K: x's bytes are not M rows of K.
    r = Product(lease.lease_id());
    r.set_x_inline(std::string(std::min<uint64_t>(n, 1 << 20), 'x'));
    EXPECT_EQ(c.Linear(r, &reply).error_code(), kInvalid);
    r = Product(lease.lease_id());
    r.mutable_x_arena()->set_arena_id(arena.arena_id());
    r.mutable_y_arena()->set_arena_id(arena.arena_id());
    r.mutable_y_arena()->set_offset(1 << 20);
    EXPECT_TRUE(c.Linear(r, &reply).ok());
    r.set_m(n);
    EXPECT_EQ(c.Linear(r, &reply).error_code(), n == 1 ? kOk : kInvalid);
    r.set_m(1);
    r.mutable_x_arena()->set_offset(n);
    EXPECT_EQ(c.Linear(r, &reply).error_code(), n == 0 ? kOk : kInvalid);
    r.mutable_x_arena()->set_offset(0);
    r.mutable_y_arena()->set_offset(n);
    EXPECT_EQ(c.Linear(r, &reply).error_code(), kInvalid);  // 0: over x
    // Sizes of arenas and pages.
    create.set_bytes(n);
    const grpc::Status s =
        c.linear->CreateArena(Deadline(10, c.token()).get(), create, &arena_reply_);
    if (n == 0 || n > uint64_t{16} << 30) {
      EXPECT_EQ(s.error_code(), kInvalid);
    } else {
      EXPECT_THAT(int{s.error_code()}, AnyOf(kOk, int{grpc::StatusCode::RESOURCE_EXHAUSTED}));
    }
    v1::GetModelRequest page;
    page.set_name("a");
    page.set_page_size(static_cast<uint32_t>(n));
    page.set_page_token(absl::StrCat(n));
    v1::GetModelReply got;
    EXPECT_THAT(int{c.models->Get(Deadline().get(), page, &got).error_code()},
                AnyOf(kOk, kInvalid));
    v1::SubmitJobRequest job;
    job.mutable_spec()->mutable_pack()->set_source("m/save");
    job.mutable_spec()->mutable_pack()->set_output("m/out");
    job.mutable_spec()->mutable_pack()->set_threads(static_cast<uint32_t>(n));
    v1::Job submitted;
    if (static_cast<uint32_t>(n) > 1024) {
      EXPECT_EQ(c.jobs->Submit(Deadline().get(), job, &submitted).error_code(), kInvalid);
    }
  }
  for (const std::string& name :
       {std::string(), std::string("../x"), std::string("."), std::string("..x"),
        std::string(64 << 10, 'n'), std::string("a/b"), std::string("a\0b", 3), std::string("a b"),
        std::string("a\n"), std::string(129, 'n')}) {
    SCOPED_TRACE(name.substr(0, 20));
    EXPECT_EQ(c.Load(name, "m/save").error_code(), kInvalid);
    v1::SubmitJobRequest job;
    job.mutable_spec()->mutable_load()->set_name(name);
    job.mutable_spec()->mutable_load()->set_path("m/save");
    v1::Job submitted;
    EXPECT_EQ(c.jobs->Submit(Deadline().get(), job, &submitted).error_code(), kInvalid);
    v1::AttachReply granted;
    EXPECT_THAT(int{c.Attach(name, &granted).error_code()}, AnyOf(kInvalid, kNotFound));
    EXPECT_THAT(int{c.Unload(name).error_code()}, AnyOf(kInvalid, kNotFound));
  }
  for (const std::string& path :
       {std::string(), std::string("../x"), std::string("m/../../etc"), std::string("/etc"),
        std::string("m//etc"), std::string("m/") + std::string(64 << 10, 'p'),
        std::string("m/a\0b", 5)})
    EXPECT_EQ(c.Load("b", path).error_code(), kInvalid) << path.substr(0, 20);
  EXPECT_EQ(c.Info().devices(0).worker_restarts(), 0u);
  EXPECT_TRUE(daemon().process().running());
}

// Every error that a client can provoke, and what the failed ones leave to be seen.
TEST_F(DaemonCases, Leak) {
  // Its worker can be taken from it.
  std::filesystem::copy_file(BinPath("glyd-worker"), dir() + "/w");
  Start({"--worker", dir() + "/w", "--queue", "1"});
  RawClient c(dir());
  std::vector<std::string> texts;
  const auto told = [&](const grpc::Status& s) {
    EXPECT_FALSE(s.ok());
    texts.push_back(s.error_message());
  };
  ASSERT_EQ(c.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  v1::AttachReply lease;
  ASSERT_TRUE(c.Attach("a", &lease).ok());
  // Saves and checkpoints that are none, files that cannot be read, links that leave the root.
  std::filesystem::create_symlink("/etc", dir() + "/link");
  std::filesystem::create_directories(dir() + "/locked");
  std::filesystem::create_directories(dir() + "/linked");
  std::filesystem::create_symlink("/etc/passwd", dir() + "/linked/glyd.json");
  std::filesystem::create_directories(dir() + "/linked2");
  std::filesystem::create_symlink("/etc/passwd", dir() + "/linked2/model.safetensors");
  ASSERT_EQ(::mkfifo((dir() + "/locked/glyd.json").c_str(), 0600), 0);
  std::vector<std::string> paths = {"m/none", "m/link", "m/locked", "m/linked", "m/save/glyd.json"};
  for (const auto& e : std::filesystem::directory_iterator(testing::SaveCases()))
    if (e.is_directory()) {
      const std::string name = e.path().filename();
      std::filesystem::copy(e.path(), dir() + "/bad-" + name);
      paths.push_back("m/bad-" + name);
    }
  int n = 0;
  for (const std::string& path : paths) {
    const v1::Model m = c.LoadAndWait(absl::StrCat("bad", n++), path, true);
    texts.push_back(m.error());
  }
  const auto job = [&](const v1::JobSpec& spec) {
    v1::SubmitJobRequest r;
    *r.mutable_spec() = spec;
    v1::Job j;
    const grpc::Status s = c.jobs->Submit(Deadline().get(), r, &j);
    if (!s.ok()) return told(s);
    j = c.WaitForJob(j.id());
    texts.push_back(j.error());
    for (const std::string& note : j.notes()) texts.push_back(note);
  };
  v1::JobSpec spec;
  for (const char* source : {"m/none", "m/link", "m/locked", "m/linked2", "m/save", "x/y", "/etc"})
    for (const char* output : {"m/out", "m/save", "m/link/out", "m/none/out", "m"}) {
      spec.mutable_pack()->set_source(source);
      spec.mutable_pack()->set_output(output);
      job(spec);
      spec.mutable_verify()->set_path(source);
      job(spec);
    }
  // Leases, arenas, sessions, names.
  for (const std::string& id : BadIds()) {
    told(c.Release(id));
    v1::LinearReply reply;
    told(c.Linear(Product(id), &reply));
    v1::AttachReply granted;
    told(c.Attach(id, &granted));
    told(c.Unload(id));
    if (const grpc::Status loaded = c.Load(id, "m/save"); !loaded.ok()) told(loaded);
    told(c.Load("ok", id));
  }
  told(c.Unload("a"));
  v1::LinearRequest product = Product(lease.lease_id());
  v1::LinearReply reply;
  product.set_pack("none");
  told(c.Linear(product, &reply));
  product = Product(lease.lease_id());
  product.set_m(uint64_t{1} << 24);
  told(c.Linear(product, &reply));
  v1::CreateArenaRequest arena;
  arena.set_bytes(UINT64_MAX);
  told(c.linear->CreateArena(Deadline(10, c.token()).get(), arena, &arena_reply_));
  told(c.linear->CreateArena(Deadline().get(), arena, &arena_reply_));
  // The worker dies during calls, and then does not start again.
  const auto worker = static_cast<pid_t>(c.Info().devices(0).worker_pid());
  ::kill(worker, SIGSTOP);
  std::thread lost([&] {
    v1::LinearReply r;
    told(c.Linear(Product(lease.lease_id()), &r));
  });
  std::filesystem::remove(dir() + "/w");
  absl::SleepFor(absl::Milliseconds(100));
  ::kill(worker, SIGKILL);
  lost.join();
  ASSERT_TRUE(Eventually([&] { return !c.Info().devices(0).error().empty(); }));
  EXPECT_TRUE(Eventually([&] {
    texts.push_back(c.Info().devices(0).error());
    return texts.back().find("does not start") != std::string::npos;
  }));
  spec.mutable_verify()->set_path("m/save");
  job(spec);
  EXPECT_GT(texts.size(), 100u);
  std::set<std::string> unlike;
  const std::string bin = std::filesystem::path(BinPath("glyd")).parent_path();
  for (const std::string& text : texts) {
    unlike.insert(text);
    EXPECT_THAT(text, AllOf(Not(HasSubstr("0x")), Not(HasSubstr("memfd")), Not(HasSubstr("/proc")),
                            Not(HasSubstr(dir())), Not(HasSubstr(bin)), Not(HasSubstr(c.token())),
                            Not(HasSubstr(lease.lease_id())), Not(HasSubstr("/dev/"))));
    // Another's path is told only as far as the caller told it.
    if (text.find("passwd") != std::string::npos) {
      EXPECT_THAT(text, HasSubstr("../../etc/passwd"));
    }
  }
  EXPECT_GT(unlike.size(), 40u);
}

// A worker that ends in the middle of calls, as one with a poisoned device does: the daemon says
// so, another takes its place, and what is in memory is good.
TEST_F(DaemonCases, Poison) {
  Start();
  RawClient c(dir());
  ASSERT_EQ(c.LoadAndWait("a", "m/save").state(), v1::MODEL_STATE_READY);
  ASSERT_EQ(c.LoadAndWait("b", "m/other").state(), v1::MODEL_STATE_READY);
  v1::AttachReply a, b;
  ASSERT_TRUE(c.Attach("a", &a).ok());
  ASSERT_TRUE(c.Attach("b", &b).ok());
  v1::LinearReply before, after;
  ASSERT_TRUE(c.Linear(Product(a.lease_id()), &before).ok());
  auto context = Deadline(60);
  auto health = c.health->Watch(context.get(), {});
  grpc::health::v1::HealthCheckResponse state;
  ASSERT_TRUE(health->Read(&state));
  ASSERT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  for (const int signal : {SIGSEGV, SIGABRT, SIGKILL}) {
    const auto worker = static_cast<pid_t>(c.Info().devices(0).worker_pid());
    ASSERT_GT(worker, 0);
    ::kill(worker, SIGSTOP);
    std::vector<std::thread> calls;
    std::atomic<int> lost{0}, begun{0};
    for (int i = 0; i < 4; ++i)
      calls.emplace_back([&] {
        v1::LinearReply reply;
        ++begun;
        const grpc::Status s = c.Linear(Product(b.lease_id()), &reply);
        lost += s.error_code() == grpc::StatusCode::UNAVAILABLE && ReasonIn(s) == "WORKER_LOST";
      });
    EXPECT_TRUE(Eventually([&] { return begun == 4; }));
    absl::SleepFor(absl::Milliseconds(100));  // the calls are with the worker
    ::kill(worker, signal);
    ::kill(worker, SIGCONT);
    for (std::thread& t : calls) t.join();
    EXPECT_EQ(lost, 4);
    ASSERT_TRUE(health->Read(&state));
    EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
    ASSERT_TRUE(health->Read(&state));
    EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::SERVING);
    for (const std::string& lease : {a.lease_id(), b.lease_id()})
      EXPECT_TRUE(c.Linear(Product(lease), &after).ok());
    EXPECT_TRUE(c.Linear(Product(a.lease_id()), &after).ok());
    EXPECT_EQ(after.y_inline(), before.y_inline());
  }
  context->TryCancel();
  health->Finish();
  for (const char* name : {"a", "b"}) {
    v1::VerifyResidentRequest r;
    r.set_name(name);
    auto verify_context = Deadline(60);
    auto verify = c.models->VerifyResident(verify_context.get(), r);
    for (v1::VerifyResidentEvent event; verify->Read(&event);)
      EXPECT_EQ(event.bad_tensors_size(), 0);
    EXPECT_TRUE(verify->Finish().ok());
  }
}

TEST_F(DaemonCases, OomAtK) {
  StartWithFaults();
  RawClient c(dir());
  ASSERT_EQ(c.LoadAndWait("kept", "m/other").state(), v1::MODEL_STATE_READY);
  const uint64_t used = c.Info().devices(0).used_bytes();
  const auto worker = static_cast<pid_t>(c.Info().devices(0).worker_pid());
  const uint64_t held = MemoryFileBytes({worker, daemon().process().pid()});
  int k = 1;
  for (;; ++k) {
    SCOPED_TRACE(k);
    ASSERT_LT(k, 100);
    faults().failed = 0;
    faults().fail_in = k;
    const v1::Model m = c.LoadAndWait("a", "m/save", true);
    faults().fail_in = 0;
    if (faults().failed == 0) {
      EXPECT_EQ(m.state(), v1::MODEL_STATE_READY) << m.error();
      break;
    }
    ASSERT_EQ(m.state(), v1::MODEL_STATE_FAILED);
    EXPECT_FALSE(m.error().empty());
    EXPECT_EQ(c.Info().devices(0).used_bytes(), used);
    EXPECT_TRUE(c.Unload("a").ok());
    EXPECT_TRUE(Eventually([&] {
      return MemoryFileBytes({worker, daemon().process().pid()}) == held;
    }));
  }
  EXPECT_GT(k, 5) << "few of a load's allocations were made to fail";
  // An arena too.
  for (k = 1;; ++k) {
    SCOPED_TRACE(k);
    faults().failed = 0;
    faults().fail_in = k;
    v1::CreateArenaRequest create;
    create.set_bytes(1);
    const uint64_t with_a = c.Info().devices(0).used_bytes();
    const grpc::Status s =
        c.linear->CreateArena(Deadline(10, c.token()).get(), create, &arena_reply_);
    faults().fail_in = 0;
    if (faults().failed == 0) {
      EXPECT_TRUE(s.ok());
      break;
    }
    EXPECT_FALSE(s.ok());
    EXPECT_EQ(c.Info().devices(0).used_bytes(), with_a);
  }
  EXPECT_GT(k, 3);
  EXPECT_EQ(c.Info().devices(0).worker_restarts(), 0u);
}

TEST_F(DaemonCases, BadState) {
  Start();
  {
    RawClient c(dir());
    for (const char* source : {"m/save", "m/other", "m/gone"}) {
      v1::SubmitJobRequest r;
      r.mutable_spec()->mutable_verify()->set_path(source);
      r.set_request_id(source);
      v1::Job j;
      ASSERT_TRUE(c.jobs->Submit(Deadline().get(), r, &j).ok());
      EXPECT_EQ(c.WaitForJob(j.id()).state(),
                std::string(source) == "m/gone" ? v1::JOB_STATE_FAILED : v1::JOB_STATE_SUCCEEDED);
    }
  }
  daemon().process().Signal(SIGTERM);
  ASSERT_EQ(daemon().process().Wait(), 0);
  // A byte of an entry: it is put aside and listed, and the others are as they were.
  const std::string journal = dir() + "/state/jobs.db";
  std::string bytes = testing::ReadFile(journal);
  const size_t at = bytes.find("m/other");
  ASSERT_NE(at, std::string::npos);
  for (size_t i = bytes.find("m/other"); i != std::string::npos; i = bytes.find("m/other", i + 1))
    bytes[i + 3] ^= 1;
  testing::WriteFile(journal, bytes);
  // And a model whose directory is gone.
  Start({"--preload", "gone=m/nowhere", "--preload", "here=m/save"});
  {
    RawClient c(dir());
    EXPECT_TRUE(Eventually([&] { return c.Get("gone").state() == v1::MODEL_STATE_FAILED; }));
    EXPECT_THAT(c.Get("gone").error(), HasSubstr("m/nowhere"));
    EXPECT_TRUE(Eventually([&] { return c.Get("here").state() == v1::MODEL_STATE_READY; }));
    v1::ListJobsReply jobs;
    ASSERT_TRUE(c.jobs->List(Deadline().get(), {}, &jobs).ok());
    int quarantined = 0, succeeded = 0;
    for (const v1::Job& j : jobs.jobs()) {
      quarantined += j.error_reason() == "QUARANTINED" && j.state() == v1::JOB_STATE_FAILED;
      succeeded += j.state() == v1::JOB_STATE_SUCCEEDED;
    }
    EXPECT_EQ(jobs.jobs_size(), 3);
    EXPECT_EQ(quarantined, 1);
    EXPECT_EQ(succeeded, 1);
  }
  // Any byte of the files: it starts and serves.
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 6; ++round) {
    daemon().process().Signal(round % 2 == 0 ? SIGTERM : SIGKILL);
    daemon().process().Wait();
    for (const char* name : {"jobs.db", "jobs.db-wal"}) {
      const std::string path = dir() + "/state/" + name;
      if (!std::filesystem::exists(path)) continue;
      std::string file = testing::ReadFile(path);
      if (file.empty()) continue;
      const size_t byte = random() % file.size();
      file[byte] = static_cast<char>(file[byte] ^ (1 << random() % 8));
      testing::WriteFile(path, file);
      RecordProperty("flipped", absl::StrCat(name, " ", byte));
    }
    Start();
    RawClient c(dir());
    v1::SubmitJobRequest r;
    r.mutable_spec()->mutable_verify()->set_path("m/save");
    v1::Job j;
    ASSERT_TRUE(c.jobs->Submit(Deadline().get(), r, &j).ok());
    EXPECT_EQ(c.WaitForJob(j.id()).state(), v1::JOB_STATE_SUCCEEDED);
  }
}

// Watches that begin while models load, when there are many changes to tell: each hears of the end.
TEST_F(DaemonCases, WatcherMissesNoChange) {
  Start();
  RawClient c(dir());
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ModelEvent>>> others;
  for (int i = 0; i < 200; ++i) {
    contexts.push_back(Deadline(120));
    others.push_back(c.models->Watch(contexts.back().get(), {}));
  }
  for (int i = 0; i < 60; ++i) {
    const std::string name = absl::StrCat("a", i);
    ASSERT_TRUE(c.Load(name, "m/save").ok());
    auto context = Deadline(10);
    auto watch = c.models->Watch(context.get(), {});
    bool ready = false;
    for (v1::ModelEvent e; !ready && watch->Read(&e);)
      ready = e.model().name() == name && e.model().state() == v1::MODEL_STATE_READY;
    EXPECT_TRUE(ready) << name;
    context->TryCancel();
    watch->Finish();
    ASSERT_TRUE(c.Unload(name).ok());
  }
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& other : others) other->Finish();
}

class JobCases : public CasesTest {
 protected:
  // A pack that is large enough to be met at work.
  v1::SubmitJobRequest BigPack() {
    std::vector<testing::TestTensor> tensors;
    for (uint64_t i = 0; i < 64; ++i)
      tensors.push_back({.name = absl::StrCat("t.", i, ".weight"),
                         .shape = {512, 512},
                         .data = testing::Bf16(512 * 512, i)});
    testing::WriteModel(dir() + "/big", tensors);
    v1::SubmitJobRequest r;
    r.mutable_spec()->mutable_pack()->set_source("m/big");
    r.mutable_spec()->mutable_pack()->set_output("m/out");
    r.mutable_spec()->mutable_pack()->set_any(true);
    return r;
  }
  // What there is of the output: itself, its lock, its temporary.
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const std::string& name : testing::ListDir(dir()))
      if (name.find("out") != std::string::npos) names.push_back(name);
    return names;
  }
};

// Cancelled, or running when the daemon is told to end.
TEST_F(JobCases, CancelledJobsLeaveNothing) {
  const v1::SubmitJobRequest r = BigPack();
  Start();
  v1::Job j;
  {
    RawClient c(dir());
    ASSERT_TRUE(c.jobs->Submit(Deadline().get(), r, &j).ok());
    ASSERT_TRUE(Eventually([&] { return Left().size() == 2; })) << "lock and temporary";
    v1::CancelJobRequest cancel;
    cancel.set_id(j.id());
    ASSERT_TRUE(c.jobs->Cancel(Deadline().get(), cancel, &j).ok());
    EXPECT_EQ(c.WaitForJob(j.id()).state(), v1::JOB_STATE_CANCELLED);
    EXPECT_THAT(Left(), ::testing::IsEmpty());
    ASSERT_TRUE(c.jobs->Submit(Deadline().get(), r, &j).ok());
    ASSERT_TRUE(Eventually([&] { return Left().size() == 2; }));
  }
  daemon().process().Signal(SIGTERM);
  EXPECT_EQ(daemon().process().Wait(absl::Seconds(20)), 0) << daemon().process().err();
  EXPECT_THAT(Left(), ::testing::IsEmpty());
  Start();
  RawClient c(dir());
  EXPECT_EQ(c.WaitForJob(j.id()).state(), v1::JOB_STATE_CANCELLED);
}

// A job that was interrupted, and one whose worker was killed: reported, and nothing of it is left.
TEST_F(JobCases, InterruptedJobsLeaveNothing) {
  const v1::SubmitJobRequest r = BigPack();
  const auto left = [&] { return Left(); };
  for (const bool kill_daemon : {false, true}) {
    SCOPED_TRACE(kill_daemon ? "daemon" : "worker");
    Start();
    RawClient c(dir());
    const auto before = ChildrenOf(daemon().process().pid());
    v1::Job j;
    ASSERT_TRUE(c.jobs->Submit(Deadline().get(), r, &j).ok());
    // Stopped once it writes.
    ASSERT_TRUE(Eventually([&] { return left().size() == 2; })) << "lock and temporary";
    std::set<pid_t> workers;
    for (const pid_t p : ChildrenOf(daemon().process().pid()))
      if (before.count(p) == 0) workers.insert(p);
    ASSERT_EQ(workers.size(), 1u);
    const pid_t worker = *workers.begin();
    ASSERT_EQ(::kill(worker, SIGSTOP), 0);
    ASSERT_EQ(left().size(), 2u) << "it had ended";
    if (kill_daemon) {
      daemon().process().Signal(SIGKILL);
      daemon().process().Wait();
      // The one that is left behind ends while the next daemon already looks.
      std::thread late([worker] {
        absl::SleepFor(absl::Milliseconds(300));
        ::kill(worker, SIGKILL);
      });
      Start();
      late.join();
    } else {
      ::kill(worker, SIGKILL);
    }
    RawClient after(dir());
    j = after.WaitForJob(j.id());
    EXPECT_EQ(j.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(j.error_reason(), kill_daemon ? "INTERRUPTED" : "WORKER_LOST");
    if (!kill_daemon) {
      EXPECT_THAT(left(), ::testing::IsEmpty());
    }
    // The output can be written at once; what was left is gone by then.
    ASSERT_TRUE(after.jobs->Submit(Deadline().get(), r, &j).ok());
    j = after.WaitForJob(j.id());
    EXPECT_EQ(j.state(), v1::JOB_STATE_SUCCEEDED) << j.error();
    EXPECT_THAT(left(), ::testing::ElementsAre("out"));
    std::filesystem::remove_all(dir() + "/out");
  }
}

}  // namespace
}  // namespace glyd
