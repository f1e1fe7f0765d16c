#include "server/rpc/call_log.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/core/log.h"
#include "server/core/sessions.h"

namespace glyd {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr char kKey[] = "glyd-request-id";
constexpr size_t kMaxId = 64;

std::string NewId() {
  static const uint64_t run = RandomNumber();
  static std::atomic<uint64_t> next{1};
  return absl::StrFormat("%08x-%d", static_cast<uint32_t>(run), next.fetch_add(1));
}

bool IsId(const grpc::string_ref& id) {
  return !id.empty() && id.size() <= kMaxId && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

LogLevel LevelOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::CANCELLED:
      return LogLevel::kDebug;
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::DATA_LOSS:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

class CallLog : public grpc::experimental::Interceptor {
 public:
  explicit CallLog(std::string method) : method_(std::move(method)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* m) override {
    if (m->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      const auto& metadata = *m->GetRecvInitialMetadata();
      const auto it = metadata.find(kKey);
      if (it != metadata.end() && IsId(it->second))
        id_.assign(it->second.data(), it->second.size());
    }
    if (m->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = m->GetSendStatus();
      if (auto* trailing = m->GetSendTrailingMetadata(); trailing != nullptr)
        trailing->insert({kKey, id_});
      Log(LevelOf(status.error_code()), "call",
          {{"request_id", id_},
           {"method", method_},
           {"code", static_cast<int>(status.error_code())},
           {"ms", absl::ToInt64Milliseconds(absl::Now() - start_)},
           {"error", status.error_message()}});
    }
    m->Proceed();
  }

 private:
  const std::string method_;
  const absl::Time start_ = absl::Now();
  std::string id_ = NewId();
};

class CallLogs : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new CallLog(info->method() == nullptr ? "(unknown)" : info->method());
  }
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewCallLog() {
  return std::make_unique<CallLogs>();
}

}  // namespace glyd
