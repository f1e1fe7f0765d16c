#ifndef GLYD_CLIENT_SRC_ADDRESS_H_
#define GLYD_CLIENT_SRC_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace glyd::internal {

// Where a daemon listens, as the user wrote it and as gRPC takes it.
struct Address {
  std::string text;         // "unix:/run/glydd/glydd.sock"
  std::string socket_path;  // of a Unix socket; empty for TCP
  std::string broker_path;  // broker.sock beside it; empty for TCP
  std::string target;       // gRPC's name for it, percent-encoded
};

// "unix:PATH" or "HOST:PORT". InvalidArgument for anything else, and for a path that no socket can
// have.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

}  // namespace glyd::internal

#endif  // GLYD_CLIENT_SRC_ADDRESS_H_
