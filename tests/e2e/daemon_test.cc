// A real glydd on a real socket, met by peers that mean no good and by signals. DaemonCases are
// named after the rows of cases from the field.

#include "tests/e2e/daemon.h"

#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/calls.h"

namespace glyd {
namespace {

using glyd::v1::BrokerRequest;
using ::testing::HasSubstr;

grpc::Status Info(const DaemonProcess& d, glyd::v1::InfoReply* reply, int seconds = 10) {
  auto stub = glyd::v1::Server::NewStub(ChannelTo(d.server()));
  return stub->Info(Deadline(seconds).get(), {}, reply);
}

TEST(DaemonCases, SecondDaemon) {
  TempDir t;
  DaemonProcess first(t.path());
  ASSERT_TRUE(first.ready()) << first.process().err();
  Process second("glydd", {"--socket", first.socket(), "--state", t / "other"});
  EXPECT_EQ(second.Wait(), 75);
  EXPECT_THAT(second.err(), HasSubstr(absl::StrCat("pid ", first.process().pid())));
  // Another socket, but the same state.
  Process third("glydd", {"--socket", t / "x/glydd.sock", "--state", t / "state"});
  EXPECT_EQ(third.Wait(), 75);
  glyd::v1::InfoReply info;
  EXPECT_TRUE(Info(first, &info).ok());
  EXPECT_EQ(info.pid(), first.process().pid());
}

// Two sockets of other names in one directory would have one broker.sock.
TEST(DaemonTest, BrokerOfALivingDaemonIsNotTakenOver) {
  TempDir t;
  DaemonProcess first(t.path());
  ASSERT_TRUE(first.ready());
  Process second("glydd", {"--socket", t / "other.sock", "--state", t / "state2"});
  EXPECT_EQ(second.Wait(), 75);
  EXPECT_THAT(second.err(), HasSubstr(absl::StrCat("pid ", first.process().pid())));
  auto s = ConnectUnix(first.broker_socket());
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_TRUE(Hello(s->get()).ok());
  Process third("glydd", {"--socket", t / "x/broker.sock", "--state", t / "state3"});
  EXPECT_EQ(third.Wait(), 78) << third.err();
}

TEST(DaemonTest, WhatTheOperatorSetWrongExits78) {
  TempDir t;
  std::filesystem::create_directories(t / "state/jobs.db");
  Process journal("glydd", {"--socket", t / "a/s.sock", "--state", t / "state"});
  EXPECT_EQ(journal.Wait(), 78) << journal.err();
  Process worker("glydd",
                 {"--socket", t / "b/s.sock", "--state", t / "state2", "--worker", "/nonexistent"});
  EXPECT_EQ(worker.Wait(), 78) << worker.err();
  EXPECT_THAT(worker.err(), HasSubstr("/nonexistent"));
}

TEST(DaemonTest, LoadJobsAreCheckedBeforeTheyAreKeptAndListedInPages) {
  TempDir t;
  DaemonProcess d(t.path(), {"--root", "m=" + t.path(), "--queue", "2000"});
  ASSERT_TRUE(d.ready());
  auto jobs = glyd::v1::Jobs::NewStub(ChannelTo(d.server()));
  glyd::v1::SubmitJobRequest request;
  request.mutable_spec()->mutable_load()->set_path("m/none");
  glyd::v1::Job job;
  for (const std::string& name : {std::string(), std::string("../x"), std::string(".a"),
                                  std::string("a\0b", 3), std::string(3500000, 'x')}) {
    request.mutable_spec()->mutable_load()->set_name(name);
    const grpc::Status s = jobs->Submit(Deadline().get(), request, &job);
    EXPECT_EQ(s.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << name.size();
    EXPECT_EQ(ReasonIn(s), "BAD_NAME");
  }
  // Long but legal: more than one answer's worth of them.
  const int count = 600;
  request.mutable_spec()->mutable_verify()->set_path("m/" + std::string(4000, 'p'));
  for (int i = 0; i < count; ++i) ASSERT_TRUE(jobs->Submit(Deadline().get(), request, &job).ok());
  const std::string shown = RunProgram("glyd", {"--server", d.server(), "-o", "json", "jobs"}).out;
  int listed = 0;
  for (size_t at = 0; (at = shown.find("\"id\"", at)) != std::string::npos; ++at) ++listed;
  EXPECT_EQ(listed, count);
}

TEST(DaemonCases, StaleSocket) {
  TempDir t;
  uint64_t generation = 0;
  {
    DaemonProcess first(t.path());
    ASSERT_TRUE(first.ready());
    glyd::v1::InfoReply info;
    ASSERT_TRUE(Info(first, &info).ok());
    generation = info.generation();
    const pid_t worker = info.devices(0).worker_pid();
    first.process().Signal(SIGKILL);
    first.process().Wait();
    EXPECT_TRUE(std::filesystem::exists(first.socket()));
    EXPECT_TRUE(Eventually([&] { return ::kill(worker, 0) != 0; })) << "the worker outlives glydd";
  }
  DaemonProcess again(t.path());
  ASSERT_TRUE(again.ready()) << again.process().err();
  glyd::v1::InfoReply info;
  ASSERT_TRUE(Info(again, &info).ok());
  EXPECT_NE(info.generation(), generation);
  // A cleaner of temporary files takes the lock files away: the living sockets stay.
  for (const char* name : {"glydd.sock.lock", "broker.sock.lock"})
    std::filesystem::remove(t / name);
  Process third("glydd", {"--socket", again.socket(), "--state", t / "state3"});
  EXPECT_EQ(third.Wait(), 75) << third.err();
  EXPECT_TRUE(Info(again, &info).ok());
  // What is no socket is nobody's to remove.
  for (const bool link : {false, true}) {
    std::filesystem::create_directories(t / "other");
    if (link)
      std::filesystem::create_symlink(again.socket(), t / "other/glydd.sock");
    else
      std::ofstream(t / "other/glydd.sock") << "mine";
    Process fourth("glydd", {"--socket", t / "other/glydd.sock", "--state", t / "state4"});
    EXPECT_EQ(fourth.Wait(), 78) << fourth.err();
    EXPECT_TRUE(std::filesystem::exists(t / "other/glydd.sock"));
    std::filesystem::remove_all(t / "other");
  }
  EXPECT_TRUE(Info(again, &info).ok());
}

TEST(DaemonCases, Watcher) {
  TempDir t;
  DaemonProcess d(t.path());
  ASSERT_TRUE(d.ready());
  glyd::v1::InfoReply info;
  ASSERT_TRUE(Info(d, &info).ok());
  auto channel = ChannelTo(d.server());
  auto models = glyd::v1::Models::NewStub(channel);
  auto health = grpc::health::v1::Health::NewStub(channel);
  auto c1 = Deadline(60), c2 = Deadline(60);
  auto watch = models->Watch(c1.get(), {});
  glyd::v1::ModelEvent event;
  ASSERT_TRUE(watch->Read(&event));
  EXPECT_EQ(event.kind(), glyd::v1::ModelEvent::KIND_SYNCED);
  auto states = health->Watch(c2.get(), {});
  grpc::health::v1::HealthCheckResponse state;
  ASSERT_TRUE(states->Read(&state));
  EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  UniqueFd idle = *ConnectUnix(d.broker_socket());
  ASSERT_TRUE(Hello(idle.get()).ok());
  // One that never reads, and a connection that says nothing.
  auto c3 = Deadline(60);
  auto unread = models->Watch(c3.get(), {});
  UniqueFd silent = *ConnectUnix(d.socket());

  d.process().Signal(SIGTERM);
  ASSERT_TRUE(states->Read(&state));
  EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watch->Read(&event));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  while (states->Read(&state)) {
  }
  states->Finish();
  EXPECT_EQ(d.process().Wait(absl::Seconds(15)), 0) << d.process().err();
  for (const char* name : {"glydd.sock", "broker.sock", "glydd.sock.lock", "state/lock"})
    EXPECT_FALSE(std::filesystem::exists(t / name)) << name;
  EXPECT_TRUE(Eventually([&] { return ::kill(info.devices(0).worker_pid(), 0) != 0; }));
}

TEST(DaemonTest, KilledWorkerIsStartedAgain) {
  TempDir t;
  DaemonProcess d(t.path());
  ASSERT_TRUE(d.ready());
  glyd::v1::InfoReply info;
  ASSERT_TRUE(Info(d, &info).ok());
  const pid_t worker = info.devices(0).worker_pid();
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    return Info(d, &info).ok() && info.devices(0).worker_pid() > 0 &&
           info.devices(0).worker_pid() != worker;
  }));
  EXPECT_EQ(info.devices(0).worker_restarts(), 1u);
}

TEST(DaemonTest, HealthNamesItsServices) {
  TempDir t;
  DaemonProcess d(t.path());
  ASSERT_TRUE(d.ready());
  auto health = grpc::health::v1::Health::NewStub(ChannelTo(d.server()));
  for (const char* service : {"", "liveness", "readiness"}) {
    grpc::health::v1::HealthCheckRequest r;
    r.set_service(service);
    grpc::health::v1::HealthCheckResponse reply;
    EXPECT_TRUE(health->Check(Deadline().get(), r, &reply).ok()) << service;
    EXPECT_EQ(reply.status(), grpc::health::v1::HealthCheckResponse::SERVING) << service;
  }
  grpc::health::v1::HealthCheckRequest r;
  r.set_service("glyd.model.none");
  grpc::health::v1::HealthCheckResponse reply;
  EXPECT_EQ(health->Check(Deadline().get(), r, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(BrokerTest, NonsenseCostsOnlyItsOwnConnection) {
  TempDir t;
  DaemonProcess d(t.path());
  ASSERT_TRUE(d.ready());
  UniqueFd good = *ConnectUnix(d.broker_socket());
  ASSERT_EQ(Hello(good.get())->code(), 0);
  const auto expect_closed = [&](const std::string& bytes, const char* what) {
    UniqueFd s = *ConnectUnix(d.broker_socket());
    (void)WriteFull(s.get(), bytes.data(), bytes.size(), "broker");
    ::shutdown(s.get(), SHUT_WR);
    char buffer[65536];
    ssize_t n;
    while ((n = ::read(s.get(), buffer, sizeof buffer)) > 0) {
    }
    EXPECT_LE(n, 0) << what;
  };
  expect_closed("", "nothing");
  expect_closed("\x01", "part of a length");
  expect_closed(std::string("\x10\0\0\0abc", 7), "part of a frame");
  expect_closed(std::string("\xff\xff\xff\xff", 4), "an absurd length");
  expect_closed(std::string("\0\0\0\0", 4), "an empty request");
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::string bytes(random() % 2000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    // Half of them with a true length, so that the parser sees them.
    if (round % 2 == 0) {
      const uint32_t n = static_cast<uint32_t>(bytes.size());
      bytes.insert(0, reinterpret_cast<const char*>(&n), sizeof n);
    }
    expect_closed(bytes, "noise");
  }
  BrokerRequest fetch;
  fetch.mutable_fetch()->set_lease_id(std::string(1000, 'x'));
  EXPECT_EQ(AskBroker(good.get(), fetch)->reason(), "NO_LEASE");
  fetch.mutable_fetch()->set_arena_id("0123456789abcdef-a1-0123456789abcdef");
  EXPECT_EQ(AskBroker(good.get(), fetch)->reason(), "NO_ARENA");
  UniqueFd early = *ConnectUnix(d.broker_socket());
  EXPECT_EQ(AskBroker(early.get(), fetch)->reason(), "NO_SESSION");
  EXPECT_EQ(Hello(early.get(), 99)->reason(), "PROTOCOL");
  EXPECT_EQ(Hello(early.get())->code(), 0);
  EXPECT_NE(Hello(early.get())->code(), 0) << "a second hello";
  glyd::v1::InfoReply info;
  ASSERT_TRUE(Info(d, &info).ok());
  EXPECT_EQ(info.sessions(), 2u);
}

TEST(DaemonCases, ChildHolds) {
  TempDir t;
  DaemonProcess d(t.path());
  ASSERT_TRUE(d.ready());
  const auto sessions = [&] {
    glyd::v1::InfoReply info;
    return Info(d, &info).ok() ? static_cast<int>(info.sessions()) : -1;
  };
  UniqueFd s = *ConnectUnix(d.broker_socket());
  const auto welcome = Hello(s.get());
  ASSERT_TRUE(welcome.ok());
  auto linear = glyd::v1::Linear::NewStub(ChannelTo(d.server()));
  const auto create = [&](const std::string& token) {
    auto c = Deadline();
    c->AddMetadata("glyd-session", token);
    glyd::v1::CreateArenaRequest r;
    r.set_bytes(1);
    glyd::v1::CreateArenaReply reply;
    return linear->CreateArena(c.get(), r, &reply);
  };
  const std::string token = absl::BytesToHexString(welcome->welcome().token());
  EXPECT_TRUE(create(token).ok());
  EXPECT_EQ(ReasonIn(create(std::string(64, '0'))), "NO_SESSION");
  glyd::v1::InfoReply info;
  ASSERT_TRUE(Info(d, &info).ok());
  EXPECT_EQ(info.devices(0).used_bytes(), uint64_t{2} << 20);
  s.reset();
  EXPECT_TRUE(Eventually([&] { return sessions() == 0; }, absl::Seconds(1)));
  EXPECT_EQ(ReasonIn(create(token)), "NO_SESSION");
  EXPECT_TRUE(Eventually([&] { return Info(d, &info).ok() && info.devices(0).used_bytes() == 0; }));

  // A process that dies while a child of its own keeps the socket.
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    UniqueFd held = *ConnectUnix(d.broker_socket());
    if (!Hello(held.get()).ok()) ::_exit(1);
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    (void)!::write(ready[1], &child, sizeof child);
    ::pause();
    ::_exit(0);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ready[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  EXPECT_EQ(sessions(), 1);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return sessions() == 0; }, absl::Seconds(1)));
  ::kill(child, SIGKILL);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(BrokerTest, OnlyListedUsersGetIn) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kListed = 12345, kOther = 54321;
  TempDir t;
  ASSERT_EQ(::chmod(t.path().c_str(), 0755), 0);
  // A directory that glydd makes: the listed one gets through it.
  DaemonProcess d(t / "made", {"--allow-uid", absl::StrCat(kListed)});
  ASSERT_TRUE(d.ready());
  const auto code_as = [&](uid_t uid) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::setuid(uid) != 0) ::_exit(99);
      auto s = ConnectUnix(d.broker_socket());
      if (!s.ok()) ::_exit(98);
      const auto reply = Hello(s->get());
      ::_exit(reply.ok() ? reply->code() : 97);
    }
    int status;
    ::waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(code_as(kListed), 0);
  EXPECT_EQ(code_as(kOther), static_cast<int>(grpc::StatusCode::PERMISSION_DENIED));
  EXPECT_EQ(code_as(0), 0);
}

TEST(DaemonCases, FdStorm) {
  TempDir t;
  DaemonProcess d(t.path(), {}, {"prlimit", "--nofile=64"});
  ASSERT_TRUE(d.ready()) << d.process().err();
  for (const std::string& path : {d.broker_socket(), d.socket()}) {
    std::vector<UniqueFd> storm;
    for (int i = 0; i < 200; ++i) {
      auto s = ConnectUnix(path);
      if (s.ok()) storm.push_back(*std::move(s));
    }
    storm.clear();
    glyd::v1::InfoReply info;
    EXPECT_TRUE(Info(d, &info, 2).ok()) << path;
    EXPECT_TRUE(Eventually(
        [&] {
          auto s = ConnectUnix(d.broker_socket());
          return s.ok() && Hello(s->get()).ok();
        },
        absl::Seconds(2)))
        << path;
  }
}

}  // namespace
}  // namespace glyd
