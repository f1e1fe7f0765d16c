#include "client/src/address.h"

#include <gtest/gtest.h>

#include <string>

namespace glyd::internal {
namespace {

TEST(ParseAddress, UnixSocketsHaveTheirBrokerBeside) {
  const auto a = ParseAddress("unix:/run/glydd/glydd.sock");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->socket_path, "/run/glydd/glydd.sock");
  EXPECT_EQ(a->broker_path, "/run/glydd/broker.sock");
  EXPECT_EQ(a->target, "unix:/run/glydd/glydd.sock");
  EXPECT_EQ(ParseAddress("unix:///x/s")->socket_path, "/x/s");
  EXPECT_EQ(ParseAddress("unix:s")->broker_path, "broker.sock");
}

TEST(ParseAddress, WhatAUriWouldReadIsEncoded) {
  EXPECT_EQ(ParseAddress("unix:/a b/c%?#.sock")->target, "unix:/a%20b/c%25%3F%23.sock");
}

TEST(ParseAddress, TcpHasNoBroker) {
  const auto a = ParseAddress("gpu1.example:7443");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->target, "dns:///gpu1.example:7443");
  EXPECT_EQ(a->socket_path, "");
  EXPECT_EQ(a->broker_path, "");
  EXPECT_TRUE(ParseAddress("[::1]:7443").ok());
}

TEST(ParseAddress, WhatIsNeitherIsRefused) {
  for (const char* bad :
       {"", "unix:", "host", "host:", ":1", "host:0", "host:65536", "host:x", "/run/glydd.sock"})
    EXPECT_EQ(ParseAddress(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
}

TEST(ParseAddress, APathThatNoSocketCanHaveIsToldWithBothNumbers) {
  const auto a = ParseAddress("unix:/" + std::string(107, 'x'));
  ASSERT_FALSE(a.ok());
  EXPECT_NE(a.status().message().find("108 characters, 1 to 107"), absl::string_view::npos)
      << a.status();
  EXPECT_TRUE(ParseAddress("unix:/" + std::string(106, 'x')).ok());
}

}  // namespace
}  // namespace glyd::internal
