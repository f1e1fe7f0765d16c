#include "client/src/errors.h"

#include <gtest/gtest.h>

#include "glyd/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace glyd::internal {
namespace {

grpc::Status WithDetails(grpc::StatusCode code, const std::string& domain) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_domain(domain);
  info.set_reason("MODEL_NAME_TAKEN");
  details.add_details()->PackFrom(info);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  retry.mutable_retry_delay()->set_nanos(500'000'000);
  details.add_details()->PackFrom(retry);
  return grpc::Status(code, "model \"a\" is there", details.SerializeAsString());
}

TEST(ToStatus, CarriesCodeTextReasonAndWait) {
  const absl::Status s = ToStatus(WithDetails(grpc::StatusCode::ALREADY_EXISTS, "glyd"), "unix:/s");
  EXPECT_EQ(s.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(s.message(), "model \"a\" is there");
  EXPECT_EQ(Reason(s), "MODEL_NAME_TAKEN");
  EXPECT_EQ(RetryAfter(s), absl::Milliseconds(2500));
}

TEST(ToStatus, AnotherDomainsReasonIsNotOurs) {
  EXPECT_EQ(Reason(ToStatus(WithDetails(grpc::StatusCode::NOT_FOUND, "elsewhere"), "unix:/s")), "");
}

TEST(ToStatus, DetailsThatDoNotParseAreIgnored) {
  const absl::Status s =
      ToStatus(grpc::Status(grpc::StatusCode::INTERNAL, "text", "\xff\xff\xff"), "unix:/s");
  EXPECT_EQ(s, absl::InternalError("text"));
}

TEST(ToStatus, UnavailableWithoutReasonIsALostConnection) {
  const absl::Status s =
      ToStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"), "unix:/s");
  EXPECT_EQ(Reason(s), kReasonConnectionLost);
  EXPECT_NE(s.message().find("unix:/s"), absl::string_view::npos);
  const absl::Status told = ToStatus(WithDetails(grpc::StatusCode::UNAVAILABLE, "glyd"), "unix:/s");
  EXPECT_EQ(Reason(told), "MODEL_NAME_TAKEN");
}

TEST(ToStatus, NoTextIsToldAsThat) {
  EXPECT_EQ(ToStatus(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""), "unix:/s").message(),
            "unix:/s answers UNIMPLEMENTED and no more");
}

TEST(ToStatus, OkIsOk) {
  EXPECT_TRUE(ToStatus(grpc::Status::OK, "unix:/s").ok());
  EXPECT_EQ(Reason(absl::OkStatus()), "");
  EXPECT_EQ(RetryAfter(absl::OkStatus()), absl::ZeroDuration());
}

}  // namespace
}  // namespace glyd::internal
