// Every method of a live daemon, given messages that no client of ours would send.

#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "glyd/v1/jobs.grpc.pb.h"
#include "glyd/v1/linear.grpc.pb.h"
#include "glyd/v1/models.grpc.pb.h"
#include "glyd/v1/server.grpc.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon.h"

namespace glyd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

class Fuzzer {
 public:
  explicit Fuzzer(unsigned seed) : random_(seed) {}

  // A message of `type` with fields of the values that break things: edges of numbers, names that
  // are paths, long text, bytes that are no UTF-8 where the field takes them, other generations'
  // ids.
  std::string MakeRequest(const Descriptor* type) {
    const std::unique_ptr<Message> m(factory_.GetPrototype(type)->New());
    Fill(*m, 0);
    std::string bytes = m->SerializePartialAsString();
    // Some are damaged afterwards.
    if (Below(4) == 0 && !bytes.empty())
      bytes[Below(bytes.size())] ^= static_cast<char>(1 << Below(8));
    if (Below(16) == 0) bytes.resize(Below(bytes.size() + 1));
    return bytes;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }
  uint64_t Number() {
    static constexpr uint64_t kEdges[] = {0,
                                          1,
                                          2,
                                          63,
                                          64,
                                          1u << 20,
                                          0x7FFFFFFF,
                                          0x80000000u,
                                          uint64_t{1} << 40,
                                          INT64_MAX,
                                          uint64_t{1} << 63,
                                          UINT64_MAX};
    return kEdges[Below(std::size(kEdges))];
  }
  std::string Text() {
    switch (Below(8)) {
      case 0:
        return "";
      case 1:
        return "../x";
      case 2:
        return std::string(65536, 'a');
      case 3:
        return "/etc/passwd";
      case 4:
        return "models/..//x";
      case 5:
        return std::string("a\0b", 3);
      case 6:
        return absl::StrCat("0123456789abcdef-", Below(100), "-0123456789abcdef");
      default:
        return "models/q";
    }
  }
  void Fill(Message& m, int depth) {
    const auto* r = m.GetReflection();
    const Descriptor* d = m.GetDescriptor();
    for (int i = 0; i < d->field_count(); ++i) {
      const FieldDescriptor* f = d->field(i);
      if (Below(3) == 0 || f->is_repeated()) continue;
      switch (f->cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING:
          r->SetString(&m, f, Text());
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          r->SetUInt64(&m, f, Number());
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          r->SetUInt32(&m, f, static_cast<uint32_t>(Number()));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          r->SetBool(&m, f, Below(2) == 0);
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          r->SetEnumValue(&m, f, static_cast<int>(Number()));
          break;
        case FieldDescriptor::CPPTYPE_MESSAGE:
          if (depth < 4) Fill(*r->MutableMessage(&m, f), depth + 1);
          break;
        default:
          break;
      }
    }
  }

  std::mt19937_64 random_;
  google::protobuf::DynamicMessageFactory factory_;
};

TEST(RequestsTest, NoMessageEndsTheDaemon) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Fuzzer fuzzer(seed);
  TempDir t;
  DaemonProcess d(t.path(), {"--root", "models=" + t.path() + ":rw", "--queue", "5"});
  ASSERT_TRUE(d.ready()) << d.process().err();
  const auto channel = grpc::CreateChannel(d.server(), grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  std::vector<const MethodDescriptor*> methods;
  for (const Descriptor* one :
       {glyd::v1::LoadRequest::descriptor(), glyd::v1::Job::descriptor(),
        glyd::v1::LinearRequest::descriptor(), glyd::v1::InfoRequest::descriptor(),
        grpc::health::v1::HealthCheckRequest::descriptor()}) {
    const auto* service = one->file()->service(0);
    for (int i = 0; i < service->method_count(); ++i)
      // Drain would have the rest refused, and is asked last.
      if (service->method(i)->name() != "Drain") methods.push_back(service->method(i));
  }
  ASSERT_GT(methods.size(), 20u);
  for (int round = 0; round < 40; ++round) {
    for (const MethodDescriptor* m : methods) {
      const grpc::Slice slice(fuzzer.MakeRequest(m->input_type()));
      const grpc::ByteBuffer request(&slice, 1);
      grpc::ClientContext context;
      // Watches go on for as long as they are let.
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::milliseconds(m->server_streaming() ? 20 : 10000));
      if (round % 2 == 0) context.AddMetadata("glyd-session", std::string(64, 'f'));
      grpc::CompletionQueue queue;
      const std::string path = absl::StrCat("/", m->service()->full_name(), "/", m->name());
      const auto call = stub.PrepareUnaryCall(&context, path, request, &queue);
      call->StartCall();
      grpc::ByteBuffer reply;
      grpc::Status status;
      call->Finish(&reply, &status, &queue);
      void* tag = nullptr;
      bool ok = false;
      ASSERT_TRUE(queue.Next(&tag, &ok)) << path;
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE)
          << path << ": " << status.error_message();
      // No text tells of an address or of what lies outside the roots.
      EXPECT_EQ(status.error_message().find("0x"), std::string::npos)
          << path << ": " << status.error_message();
      if (!m->server_streaming()) {
        EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << path;
      }
    }
  }
  EXPECT_TRUE(d.process().running()) << d.process().err();
  glyd::v1::InfoReply info;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  ASSERT_TRUE(glyd::v1::Server::NewStub(channel)->Info(&context, {}, &info).ok());
  EXPECT_EQ(info.devices(0).worker_restarts(), 0u);
  EXPECT_EQ(info.leases(), 0u);
  EXPECT_EQ(info.devices(0).used_bytes(), 0u);
}

}  // namespace
}  // namespace glyd
