#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/server.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"

namespace octavo::rpc {

/// Accepts on a Unix socket itself and hands each connection to the server, keeping a duplicate of its descriptor: a peer
/// that has stopped reading would otherwise hold gRPC's own shutdown for ever; cutting the descriptor ends it.
class UnixListener {
 public:
  /// A socket file that nobody answers on is replaced; one that answers is AlreadyExists. Mode 0660.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Open(const std::string& path, grpc::Server* server);
  ~UnixListener();
  /// No more connections.
  void Stop();
  /// Cuts every connection.
  void CutAll();

 private:
  UnixListener(std::string path, UniqueFd fd, grpc::Server* server);
  void Run(std::stop_token stop);
  const std::string path_;
  const UniqueFd fd_;
  grpc::Server* const server_;
  Mutex mutex_;
  std::vector<UniqueFd> connections_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace octavo::rpc
