#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/support/string_ref.h"

#include "server/security/certificate.h"
#include "server/security/certificate_table.h"
#include "server/security/named_principals.h"
#include "server/security/principal.h"
#include "server/security/role.h"
#include "server/security/tls_failures.h"
#include "server/security/tls_store.h"
#include "server/security/token_store.h"

namespace octavo::rpc {

/// Whom the server believes.
struct TrustConfig {
  /// What TCP without a token may do. TCP over loopback is no identity: every user of the host can
  /// connect, and whatever forwards a port to it (ssh, a container's proxy, a web server).
  security::Role loopback_role = security::Role::kOperator;
  /// What other hosts may do without a token, where there are neither TLS nor tokens.
  security::Role insecure_role = security::Role::kNone;
  // Each null where there is none; each must outlive the server.
  security::TokenStore* tokens = nullptr;
  security::TlsStore* tls = nullptr;              // null = TCP without TLS
  security::TlsFailures* tls_failures = nullptr;  // not null with `tls`
  security::CertificateTable* certificates = nullptr;
  security::NamedPrincipals* names = nullptr;
  /// What a certificate may do that has no line in the table.
  security::Role certificate_role = security::Role::kNone;
  bool certificate_required = true;  // of clients, by TCP; where tls->asks_clients()
  /// How long connections go on when the set of certificates was replaced.
  double old_connections_seconds = 86'400;
};

/// Finds who calls, for every transport: by the bearer token, if the call has one; by the user at
/// the other end of the Unix socket; by the client's certificate; else nobody, with the role of the
/// configuration. Thread-safe.
class PrincipalResolver {
 public:
  using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

  explicit PrincipalResolver(const TrustConfig& config) : config_(config) {}
  /// `peer` is gRPC's text for it; `certificate` what TLS has found out about the client, null if
  /// it gave none. Unauthenticated for a token that is not valid (BAD_TOKEN) and a certificate that
  /// has expired (NO_TOKEN): whoever sends one wants to be that caller and no other one.
  absl::StatusOr<security::Principal> Resolve(
      const Metadata& metadata, const std::string& peer,
      const security::ClientCertificate* certificate = nullptr) const;

  /// The holder of a certificate, as it is now. Unauthenticated (NO_TOKEN) if it has expired.
  absl::StatusOr<security::Principal> OfCertificate(
      const security::ClientCertificate& certificate) const;

 private:
  const TrustConfig config_;
};

}  // namespace octavo::rpc
