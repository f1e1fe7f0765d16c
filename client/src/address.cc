#include "client/src/address.h"

#include <sys/un.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "glyd/client.h"

namespace glyd {

std::string DefaultServer() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const absl::string_view dir = runtime != nullptr && *runtime != '\0' ? runtime : "/run";
  return absl::StrCat("unix:", dir, "/glydd/glydd.sock");
}

namespace internal {
namespace {

// gRPC reads a target as a URI: what is not plain in one travels as %XX.
std::string PercentEncoded(absl::string_view path) {
  std::string out;
  for (const char c : path) {
    if (absl::ascii_isalnum(c) || absl::StrContains("/._-~", c)) {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<uint8_t>(c));
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  Address a;
  a.text = std::string(text);
  absl::string_view path = text;
  if (absl::ConsumePrefix(&path, "unix:")) {
    if (absl::StartsWith(path, "//")) path.remove_prefix(2);  // unix:///PATH is the same
    constexpr size_t kMax = sizeof(sockaddr_un::sun_path) - 1;
    if (path.empty() || path.size() > kMax)
      return absl::InvalidArgumentError(absl::StrCat("server \"", Printable(text),
                                                     "\": a socket path of ", path.size(),
                                                     " characters, 1 to ", kMax, " are possible"));
    a.socket_path = std::string(path);
    const size_t slash = path.rfind('/');
    a.broker_path = absl::StrCat(
        slash == absl::string_view::npos ? absl::string_view() : path.substr(0, slash + 1),
        "broker.sock");
    a.target = absl::StrCat("unix:", PercentEncoded(path));
    return a;
  }
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port == 0 || port > 65535 ||
      absl::StrContains(text, '/'))
    return absl::InvalidArgumentError(
        absl::StrCat("server \"", Printable(text), "\" is neither unix:PATH nor HOST:PORT"));
  a.target = absl::StrCat("dns:///", text);
  return a;
}

}  // namespace internal
}  // namespace glyd
