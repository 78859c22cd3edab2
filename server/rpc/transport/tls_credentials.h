#pragma once

#include <memory>

#include "grpcpp/security/server_credentials.h"

#include "server/security/tls_store.h"

namespace octavo::rpc {

/// Credentials for connections that speak TLS (1.2 or later). Each new connection uses the store's
/// set of that moment, certificates and key together, in memory; gRPC's own watcher of files reads
/// them one by one, and a pair that does not fit would refuse everybody. `required`: clients need a
/// certificate if the store knows authorities for them; else they may have one. The store must
/// outlive the server.
std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(const security::TlsStore* store,
                                                            bool required);

}  // namespace octavo::rpc
