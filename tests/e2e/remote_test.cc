// glydd's TCP listener, met by every kind of certificate, and the metrics of a scrape.

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/socket.h"
#include "base/unique_fd.h"
#include "glyd/v1/jobs.grpc.pb.h"
#include "glyd/v1/models.grpc.pb.h"
#include "glyd/v1/server.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon.h"

namespace glyd {
namespace {

using ::testing::HasSubstr;

// A certificate authority in a directory of its own, by the openssl program.
class Authority {
 public:
  explicit Authority(const std::string& name) {
    Openssl(absl::StrCat(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=", name,
        " -keyout ", key_, " -out ", cert()));
  }
  std::string cert() const { return dir_ / "ca.pem"; }

  struct Pair {
    std::string cert, key;
  };
  // Signed for `san` ("DNS:localhost,IP:127.0.0.1", "URI:glyd:role:read"), valid for `days` from
  // now.
  Pair Sign(const std::string& name, const std::string& san, int days = 1) {
    const Pair p{dir_ / (name + ".pem"), dir_ / (name + ".key")};
    const std::string csr = dir_ / (name + ".csr"), extensions = dir_ / (name + ".ext");
    std::ofstream(extensions) << "basicConstraints=CA:FALSE\n"
                              << (san.empty() ? "" : "subjectAltName=" + san + "\n");
    Openssl(absl::StrCat("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=", name,
                         " -keyout ", p.key, " -out ", csr));
    Openssl(absl::StrCat("x509 -req -in ", csr, " -CA ", cert(), " -CAkey ", key_,
                         " -CAcreateserial -days ", days, " -extfile ", extensions, " -out ",
                         p.cert));
    return p;
  }

 private:
  static void Openssl(const std::string& arguments) {
    ASSERT_EQ(std::system(("openssl " + arguments + " >/dev/null 2>&1").c_str()), 0) << arguments;
  }
  TempDir dir_;
  const std::string key_ = dir_ / "ca.key";
};

int FreePort() {
  const UniqueFd s(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof a;
  EXPECT_EQ(::bind(s.get(), reinterpret_cast<sockaddr*>(&a), n), 0);
  EXPECT_EQ(::getsockname(s.get(), reinterpret_cast<sockaddr*>(&a), &n), 0);
  return ntohs(a.sin_port);
}

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

UniqueFd Connect(int port) {
  UniqueFd s(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(s.get(), reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  return s;
}

class RemoteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = ca_.Sign("server", "DNS:localhost,IP:127.0.0.1");
    files_ = {dir_ / "server.pem", dir_ / "server.key"};
    Install(server_);
    port_ = FreePort();
  }
  void Install(const Authority::Pair& pair) {
    for (const auto& [from, to] :
         {std::pair(pair.cert, files_.cert), std::pair(pair.key, files_.key)})
      std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  }
  std::vector<std::string> Arguments() {
    return {"--listen",        absl::StrCat("127.0.0.1:", port_),
            "--tls-cert",      files_.cert,
            "--tls-key",       files_.key,
            "--tls-client-ca", ca_.cert()};
  }
  std::shared_ptr<grpc::Channel> Channel(const Authority::Pair& client,
                                         const std::string& server_ca) {
    grpc::SslCredentialsOptions o;
    o.pem_root_certs = Read(server_ca);
    if (!client.cert.empty()) {
      o.pem_cert_chain = Read(client.cert);
      o.pem_private_key = Read(client.key);
    }
    grpc::ChannelArguments a;
    // Channels of a test are not to share a connection made with another's certificate.
    a.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port_), grpc::SslCredentials(o), a);
  }
  // What Prometheus gets, with its head.
  std::string Scrape() const {
    const UniqueFd s = Connect(port_);
    const std::string get = "GET /metrics HTTP/1.0\r\n\r\n";
    EXPECT_TRUE(WriteFull(s.get(), get.data(), get.size(), "socket").ok());
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(s.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, n);
    return text;
  }
  static void SetDeadline(grpc::ClientContext& c) {
    c.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  }
  // The codes of a call that reads, one that submits, and one that administers.
  std::vector<grpc::StatusCode> Codes(const Authority::Pair& client) {
    const auto channel = Channel(client, ca_.cert());
    grpc::ClientContext a, b, c;
    SetDeadline(a), SetDeadline(b), SetDeadline(c);
    glyd::v1::InfoReply info;
    glyd::v1::Job job;
    glyd::v1::UnloadReply unload;
    glyd::v1::CancelJobRequest cancel;
    cancel.set_id("none");
    glyd::v1::UnloadRequest model;
    model.set_name("none");
    return {glyd::v1::Server::NewStub(channel)->Info(&a, {}, &info).error_code(),
            glyd::v1::Jobs::NewStub(channel)->Cancel(&b, cancel, &job).error_code(),
            glyd::v1::Models::NewStub(channel)->Unload(&c, model, &unload).error_code()};
  }

  Authority ca_{"good"};
  TempDir dir_;
  Authority::Pair server_, files_;
  int port_ = 0;
};

TEST_F(RemoteTest, RolesOfTheCertificate) {
  constexpr auto kOk = grpc::StatusCode::OK, kThere = grpc::StatusCode::NOT_FOUND,
                 kDenied = grpc::StatusCode::PERMISSION_DENIED,
                 kClosed = grpc::StatusCode::UNAVAILABLE;
  DaemonProcess d(dir_.path(), Arguments());
  ASSERT_TRUE(d.ready()) << d.process().err();
  using Codes3 = std::vector<grpc::StatusCode>;
  EXPECT_EQ(Codes(ca_.Sign("read", "URI:glyd:role:read")), (Codes3{kOk, kDenied, kDenied}));
  EXPECT_EQ(Codes(ca_.Sign("job", "URI:glyd:role:job")), (Codes3{kOk, kThere, kDenied}));
  EXPECT_EQ(Codes(ca_.Sign("admin", "URI:glyd:role:admin,DNS:some.host")),
            (Codes3{kOk, kThere, kThere}));
  EXPECT_EQ(Codes(ca_.Sign("none", "")), (Codes3{kDenied, kDenied, kDenied}));
  EXPECT_EQ(Codes(ca_.Sign("odd", "URI:glyd:role:root,DNS:glyd.role.admin")),
            (Codes3{kDenied, kDenied, kDenied}));
  // Who is not let in at all.
  Authority other("other");
  EXPECT_EQ(Codes(other.Sign("stranger", "URI:glyd:role:admin")),
            (Codes3{kClosed, kClosed, kClosed}));
  EXPECT_EQ(Codes({}), (Codes3{kClosed, kClosed, kClosed}));
  EXPECT_EQ(Codes(ca_.Sign("expired", "URI:glyd:role:admin", -1)),
            (Codes3{kClosed, kClosed, kClosed}));
  const auto plain =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials());
  grpc::ClientContext c;
  SetDeadline(c);
  glyd::v1::InfoReply info;
  EXPECT_EQ(glyd::v1::Server::NewStub(plain)->Info(&c, {}, &info).error_code(), kClosed);
  const UniqueFd garbage = Connect(port_);
  const std::string noise(5000, '\xA5');
  (void)WriteFull(garbage.get(), noise.data(), noise.size(), "socket");
  const UniqueFd silent = Connect(port_);
  // And the next good one is served.
  EXPECT_EQ(Codes(ca_.Sign("again", "URI:glyd:role:read"))[0], kOk);
}

TEST_F(RemoteTest, TheCommandLineReachesIt) {
  DaemonProcess d(dir_.path(), Arguments());
  ASSERT_TRUE(d.ready()) << d.process().err();
  const Authority::Pair admin = ca_.Sign("admin", "URI:glyd:role:admin");
  const std::string server = absl::StrCat("127.0.0.1:", port_);
  const Finished good =
      RunProgram("glyd", {"--server", server, "--tls-ca", ca_.cert(), "--tls-cert", admin.cert,
                          "--tls-key", admin.key, "info"});
  EXPECT_EQ(good.code, 0) << good.err;
  const Authority::Pair none = ca_.Sign("none", "");
  const Finished refused =
      RunProgram("glyd", {"--server", server, "--tls-ca", ca_.cert(), "--tls-cert", none.cert,
                          "--tls-key", none.key, "info"});
  EXPECT_EQ(refused.code, 4) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("role"));
}

TEST_F(RemoteTest, CertificatesChangeAndTheLastGoodOneStays) {
  DaemonProcess d(dir_.path(), Arguments());
  ASSERT_TRUE(d.ready()) << d.process().err();
  const Authority::Pair client = ca_.Sign("read", "URI:glyd:role:read");
  EXPECT_EQ(Codes(client)[0], grpc::StatusCode::OK);
  // A key that is another's, then garbage: refused, and the old pair goes on.
  Authority::Pair mixed = ca_.Sign("other", "IP:127.0.0.1");
  mixed.key = server_.key;
  Install(mixed);
  d.process().Signal(SIGHUP);
  ASSERT_TRUE(d.process().WaitForErr("is not the key of")) << d.process().err();
  EXPECT_EQ(Codes(client)[0], grpc::StatusCode::OK);
  std::ofstream(files_.cert) << "garbage";
  d.process().Signal(SIGHUP);
  ASSERT_TRUE(d.process().WaitForErr("holds no PEM certificate")) << d.process().err();
  EXPECT_EQ(Codes(client)[0], grpc::StatusCode::OK);
  // Another authority's good pair: clients that trust the first one no longer get in, others do.
  Authority second("second");
  Install(second.Sign("server2", "IP:127.0.0.1"));
  d.process().Signal(SIGHUP);
  ASSERT_TRUE(d.process().WaitForErr("certificate changed")) << d.process().err();
  EXPECT_EQ(Codes(client)[0], grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext c;
  SetDeadline(c);
  glyd::v1::InfoReply info;
  EXPECT_TRUE(glyd::v1::Server::NewStub(Channel(client, second.cert()))->Info(&c, {}, &info).ok());
}

TEST_F(RemoteTest, BadFilesAndPortsExit78) {
  const auto exit_of = [&](std::vector<std::string> arguments, const std::string& says) {
    arguments.insert(arguments.end(),
                     {"--socket", dir_ / "other/x.sock", "--state", dir_ / "xstate"});
    Process p("glydd", arguments);
    const int code = p.Wait();
    EXPECT_THAT(p.err(), HasSubstr(says));
    return code;
  };
  EXPECT_EQ(exit_of({"--listen", absl::StrCat("127.0.0.1:", port_)}, "no plaintext"), 78);
  EXPECT_EQ(exit_of({"--listen", "nowhere"}, "HOST:PORT"), 78);
  std::vector<std::string> missing = Arguments();
  missing.back() = dir_ / "none.pem";
  EXPECT_EQ(exit_of(missing, "none.pem"), 78);
  DaemonProcess first(dir_.path(), Arguments());
  ASSERT_TRUE(first.ready());
  EXPECT_EQ(exit_of(Arguments(), absl::StrCat("127.0.0.1:", port_)), 75);
  EXPECT_EQ(exit_of({"--metrics", absl::StrCat("127.0.0.1:", port_)},
                    absl::StrCat("metrics 127.0.0.1:", port_)),
            75);
  EXPECT_EQ(exit_of({"--metrics", "192.0.2.1:9"}, "metrics 192.0.2.1:9"), 78);
}

TEST_F(RemoteTest, MetricsTellOfCalls) {
  DaemonProcess d(dir_.path(), {"--metrics", absl::StrCat("127.0.0.1:", port_)});
  ASSERT_TRUE(d.ready()) << d.process().err();
  const auto channel = grpc::CreateChannel(d.server(), grpc::InsecureChannelCredentials());
  grpc::ClientContext a, b;
  SetDeadline(a), SetDeadline(b);
  glyd::v1::InfoReply info;
  EXPECT_TRUE(glyd::v1::Server::NewStub(channel)->Info(&a, {}, &info).ok());
  glyd::v1::UnloadReply unload;
  EXPECT_FALSE(glyd::v1::Models::NewStub(channel)->Unload(&b, {}, &unload).ok());
  const std::string text = Scrape();
  EXPECT_THAT(text, HasSubstr("200 OK"));
  EXPECT_THAT(text, HasSubstr("glyd_requests_total{code=\"0\",method=\"/glyd.v1.Server/Info\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("glyd_requests_total{code=\"5\",method=\"/glyd.v1.Models/Unload\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("glyd_request_duration_seconds_count{method=\"/glyd.v1.Server/Info\"} 1"));
  EXPECT_THAT(text, HasSubstr("glyd_device_budget_bytes{device=\"host\"}"));
  EXPECT_THAT(text, HasSubstr("glyd_device_up{device=\"host\"} 1"));
}

TEST_F(RemoteTest, PromtoolFindsNothingWrong) {
  if (RunProgram("/bin/sh", {"-c", "command -v promtool"}).code != 0)
    GTEST_SKIP() << "promtool is not installed (Debian: prometheus)";
  DaemonProcess d(dir_.path(), {"--metrics", absl::StrCat("127.0.0.1:", port_)});
  ASSERT_TRUE(d.ready()) << d.process().err();
  const auto channel = grpc::CreateChannel(d.server(), grpc::InsecureChannelCredentials());
  grpc::ClientContext a;
  SetDeadline(a);
  glyd::v1::InfoReply info;
  EXPECT_TRUE(glyd::v1::Server::NewStub(channel)->Info(&a, {}, &info).ok());
  const std::string text = Scrape();
  std::ofstream(dir_ / "metrics") << text.substr(text.find("\r\n\r\n") + 4);
  const Finished o =
      RunProgram("/bin/sh", {"-c", absl::StrCat("promtool check metrics <", dir_ / "metrics")});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(o.out + o.err, "");
}

TEST_F(RemoteTest, ACallIsFoundInTheLogByItsId) {
  DaemonProcess d(dir_.path(), {"--log-format", "json", "--log-level", "debug"});
  const auto channel = grpc::CreateChannel(d.server(), grpc::InsecureChannelCredentials());
  const auto models = glyd::v1::Models::NewStub(channel);
  const auto id_of = [&](const std::string& given) {
    grpc::ClientContext c;
    SetDeadline(c);
    c.set_wait_for_ready(true);
    if (!given.empty()) c.AddMetadata("glyd-request-id", given);
    glyd::v1::UnloadReply reply;
    EXPECT_FALSE(models->Unload(&c, {}, &reply).ok());
    const auto& trailing = c.GetServerTrailingMetadata();
    const auto it = trailing.find("glyd-request-id");
    return it == trailing.end() ? "" : std::string(it->second.data(), it->second.size());
  };
  EXPECT_EQ(id_of("mine-1"), "mine-1");
  const std::string made = id_of(""), other = id_of("not an id\"");
  EXPECT_NE(made, "");
  EXPECT_NE(made, other);
  EXPECT_NE(other, "not an id\"");
  for (const std::string& id : {std::string("mine-1"), made, other})
    EXPECT_TRUE(d.process().WaitForErr(absl::StrCat("\"request_id\":\"", id, "\""))) << id;
  EXPECT_THAT(d.process().err(), HasSubstr("\"method\":\"/glyd.v1.Models/Unload\""));
}

TEST_F(RemoteTest, ConnectionsHaveACap) {
  DaemonProcess d(dir_.path(), {"--max-connections", "32"});
  ASSERT_TRUE(d.ready()) << d.process().err();
  // A quarter of them of one process; the rest are closed at once.
  std::vector<UniqueFd> held;
  for (int i = 0; i < 32; ++i) held.push_back(*ConnectUnix(d.socket()));
  int open = 0;
  EXPECT_TRUE(Eventually([&] {
    open = 0;
    for (const UniqueFd& s : held) {
      pollfd p = {s.get(), POLLRDHUP, 0};
      open += ::poll(&p, 1, 0) == 0;
    }
    return open == 8;
  })) << open;
  // Another process gets in, and this one again once it has let go.
  EXPECT_EQ(RunProgram("glyd", {"--server", d.server(), "ps"}).code, 0);
  held.clear();
  EXPECT_TRUE(Eventually([&] {
    const auto channel = grpc::CreateChannel(d.server(), grpc::InsecureChannelCredentials());
    grpc::ClientContext c;
    SetDeadline(c);
    glyd::v1::InfoReply info;
    return glyd::v1::Server::NewStub(channel)->Info(&c, {}, &info).ok();
  }));
}

}  // namespace
}  // namespace glyd
