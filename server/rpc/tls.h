#ifndef GLYD_SERVER_RPC_TLS_H_
#define GLYD_SERVER_RPC_TLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace glyd {

// Files of a mutual TLS listener, and what they held.
struct TlsFiles {
  std::string cert, key, client_ca;
};
struct TlsMaterial {
  std::string cert, key, client_ca;  // PEM
  bool operator==(const TlsMaterial&) const = default;
};

// Reads and checks the three: they parse, the key is the certificate's, the certificate is valid
// now. InvalidArgument names the file and what is wrong with it.
absl::StatusOr<TlsMaterial> LoadTls(const TlsFiles& files);

// What a remote caller may do, lowest first. It is named by its certificate, as the URI SAN
// "glyd:role:NAME" (read, job or admin; the highest where there are several). A certificate with
// none is refused every call.
enum class Role { kNone, kRead, kJob, kAdmin };

// The least role for a method ("/glyd.v1.Models/Load").
Role RoleFor(const std::string& method);

// Credentials that take only peers whose certificate the client CA signed, and only calls that
// their role allows (PERMISSION_DENIED, reason ROLE).
std::shared_ptr<grpc::ServerCredentials> NewTlsCredentials(const TlsMaterial& material);

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_TLS_H_
