#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/support/string_ref.h"

#include "server/security/principal.h"
#include "server/security/role.h"
#include "server/security/token_store.h"

namespace octavo::rpc {

/// Whom the server believes.
struct TrustConfig {
  /// What TCP without a token may do. TCP over loopback is no identity: every user of the host can
  /// connect, and whatever forwards a port to it (ssh, a container's proxy, a web server).
  security::Role loopback_role = security::Role::kOperator;
  /// Null = no tokens. Must outlive the server.
  security::TokenStore* tokens = nullptr;
};

/// Finds who calls, for every transport: by the bearer token, if the call has one; by the user at
/// the other end of the Unix socket; else nobody, with the role of the configuration. Certificates
/// (TLS) have their place here. Thread-safe.
class PrincipalResolver {
 public:
  using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

  explicit PrincipalResolver(const TrustConfig& config) : config_(config) {}
  /// `peer` is gRPC's text for it. Unauthenticated (BAD_TOKEN) for a token that is not valid:
  /// whoever sends one wants to be that caller and no other one.
  absl::StatusOr<security::Principal> Resolve(const Metadata& metadata,
                                              const std::string& peer) const;

 private:
  const TrustConfig config_;
};

}  // namespace octavo::rpc
