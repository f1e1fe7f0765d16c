// A worker that lives and answers nothing: stopped, as a debugger or a driver call without end
// does.

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include "glyd/v1/server.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon.h"

namespace glyd {
namespace {

TEST(HangTest, AStoppedWorkerIsKilledAndAnotherServes) {
  TempDir t;
  DaemonProcess d(t.path());
  ASSERT_TRUE(d.ready()) << d.process().err();
  auto stub = glyd::v1::Server::NewStub(
      grpc::CreateChannel(d.server(), grpc::InsecureChannelCredentials()));
  const auto worker = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    glyd::v1::InfoReply info;
    return stub->Info(&context, {}, &info).ok() ? info.devices(0).worker_pid() : 0;
  };
  const pid_t first = worker();
  ASSERT_GT(first, 0);
  ASSERT_EQ(::kill(first, SIGSTOP), 0);
  EXPECT_TRUE(Eventually([&] { return worker() > 0 && worker() != first; }, absl::Seconds(60)));
  EXPECT_NE(::kill(first, 0), 0);
}

}  // namespace
}  // namespace glyd
