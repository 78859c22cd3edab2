#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "grpcpp/server_context.h"

#include "gpu/base/mutex.h"
#include "server/security/certificate.h"

namespace octavo::rpc {

/// What the certificates of clients say. gRPC keeps a connection's as text; each is read once, not
/// with each call. Thread-safe.
class CertificateCache {
 public:
  /// Of the client that makes a call; null if TLS has not found one.
  std::shared_ptr<const security::ClientCertificate> Find(const grpc::ServerContextBase& context);

 private:
  Mutex mutex_;
  // By text. A few hundred clients are many; more only cost time.
  std::map<std::string, std::shared_ptr<const security::ClientCertificate>, std::less<>> known_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::rpc
