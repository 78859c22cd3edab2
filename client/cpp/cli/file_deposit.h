#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"

#include "client/cpp/cli/commands.h"
#include "gpu/base/unique_fd.h"

namespace octavo::cli {

/// A file or folder of this host that the server may read while the object lives: handed over by
/// descriptor on the hand-over socket.
class FileDeposit {
 public:
  /// Null if the server cannot take it, in *status: NOT_LOCAL, HANDOFF_DISABLED, what the server
  /// refuses, or why the file cannot be opened here.
  static std::unique_ptr<FileDeposit> Make(const Session& session, const std::string& path,
                                           grpc::Status* status);
  const std::string& ticket() const { return ticket_; }

 private:
  FileDeposit(UniqueFd connection, std::string ticket)
      : connection_(std::move(connection)), ticket_(std::move(ticket)) {}

  const UniqueFd connection_;
  const std::string ticket_;
};

}  // namespace octavo::cli
