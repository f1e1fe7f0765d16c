#include "server/rpc/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "server/rpc/status.h"

namespace glyd {
namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

constexpr char kRolePrefix[] = "glyd:role:";

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, Printable(path, 4096));
  return ReadWhole(fd.get(), 1 << 20, Printable(path, 4096));
}

absl::StatusOr<Certificate> ParseCertificate(const std::string& pem, const std::string& path) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Certificate c(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (c == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds no PEM certificate"));
  return c;
}

absl::Status CheckDates(const X509* certificate, const std::string& path) {
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) >= 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": the certificate is not valid yet"));
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": the certificate has expired"));
  return absl::OkStatus();
}

Role RoleOf(const grpc::AuthContext& peer) {
  const std::map<std::string, Role> roles = {
      {"read", Role::kRead}, {"job", Role::kJob}, {"admin", Role::kAdmin}};
  Role best = Role::kNone;
  // The URIs alone: a DNS name that looks like one is no role.
  for (const grpc::string_ref& uri : peer.FindPropertyValues("peer_uri")) {
    const std::string name(uri.data(), uri.size());
    if (!absl::StartsWith(name, kRolePrefix)) continue;
    const auto it = roles.find(name.substr(sizeof kRolePrefix - 1));
    if (it != roles.end()) best = std::max(best, it->second);
  }
  return best;
}

class RoleProcessor : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const std::string method =
        path == metadata.end() ? "" : std::string(path->second.data(), path->second.size());
    if (RoleOf(*context) >= RoleFor(method)) return grpc::Status::OK;
    return ToGrpc(
        WithReason(absl::PermissionDeniedError("this certificate's role does not allow the call; "
                                               "roles are URI SANs glyd:role:read, job or admin"),
                   "ROLE"));
  }
};

}  // namespace

absl::StatusOr<TlsMaterial> LoadTls(const TlsFiles& files) {
  TlsMaterial m;
  GLYD_ASSIGN_OR_RETURN(m.cert, ReadPem(files.cert));
  GLYD_ASSIGN_OR_RETURN(m.key, ReadPem(files.key));
  GLYD_ASSIGN_OR_RETURN(m.client_ca, ReadPem(files.client_ca));
  GLYD_ASSIGN_OR_RETURN(const Certificate certificate, ParseCertificate(m.cert, files.cert));
  GLYD_ASSIGN_OR_RETURN(const Certificate ca, ParseCertificate(m.client_ca, files.client_ca));
  GLYD_RETURN_IF_ERROR(CheckDates(certificate.get(), files.cert));
  GLYD_RETURN_IF_ERROR(CheckDates(ca.get(), files.client_ca));
  const Bio bio(BIO_new_mem_buf(m.key.data(), static_cast<int>(m.key.size())));
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  const bool match = key != nullptr && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(files.key, ": holds no PEM private key"));
  if (!match)
    return absl::InvalidArgumentError(absl::StrCat(files.key, ": is not the key of ", files.cert));
  return m;
}

Role RoleFor(const std::string& method) {
  static const std::map<std::string, Role>* const kRoles = new std::map<std::string, Role>{
      {"/glyd.v1.Models/List", Role::kRead},         {"/glyd.v1.Models/Get", Role::kRead},
      {"/glyd.v1.Models/Watch", Role::kRead},        {"/glyd.v1.Jobs/Get", Role::kRead},
      {"/glyd.v1.Jobs/List", Role::kRead},           {"/glyd.v1.Jobs/Watch", Role::kRead},
      {"/glyd.v1.Server/Info", Role::kRead},         {"/grpc.health.v1.Health/Check", Role::kRead},
      {"/grpc.health.v1.Health/Watch", Role::kRead}, {"/glyd.v1.Jobs/Submit", Role::kJob},
      {"/glyd.v1.Jobs/Cancel", Role::kJob},
  };
  const auto it = kRoles->find(method);
  if (it != kRoles->end()) return it->second;
  return absl::StartsWith(method, "/grpc.reflection.") ? Role::kRead : Role::kAdmin;
}

std::shared_ptr<grpc::ServerCredentials> NewTlsCredentials(const TlsMaterial& material) {
  grpc::SslServerCredentialsOptions o(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  o.pem_root_certs = material.client_ca;
  o.pem_key_cert_pairs.push_back({material.key, material.cert});
  auto credentials = grpc::SslServerCredentials(o);
  credentials->SetAuthMetadataProcessor(std::make_shared<RoleProcessor>());
  return credentials;
}

}  // namespace glyd
