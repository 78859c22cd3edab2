#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"
#include "server/handoff/fd_socket.h"
#include "server/volume_import/file_system_probe.h"

namespace octavo::volume_import {

/// A file or folder that a client has opened, and what the client calls it, for messages.
struct DepositedFile {
  UniqueFd fd;
  std::string name;
};

/// Files and folders that clients on this host have handed over by descriptor, for imports that
/// name their ticket. A deposit is there while the connection that brought it is open. Imports that
/// have begun have descriptors of their own. Thread-safe; must outlive the socket's work.
class FileDeposits {
 public:
  /// Deposits and tickets for them at once: of all clients, of a user, and of a connection that
  /// asks for them. One that takes all it can leaves room for others.
  static constexpr size_t kMost = 256, kMostOfUser = 128, kMostOfConnection = 32;

  FileDeposits();
  ~FileDeposits();

  /// A ticket with which the user `uid` (nothing = anyone) brings one file on `socket`.
  /// `connection`: gRPC's text for that of the client; `asked`: whose it is. InvalidArgument (name:
  /// empty, too long, with
  /// '/'), ResourceExhausted (TICKETS), and errors of FdSocket::Issue.
  absl::StatusOr<handoff::Ticket> Open(handoff::FdSocket& socket, const std::string& name,
                                       const std::string& connection, std::optional<uid_t> uid,
                                       const handoff::Holder& asked = {});
  /// A descriptor of the file that came with this ticket. NotFound (TICKET_UNKNOWN), with `field`;
  /// ResourceExhausted (NO_DESCRIPTORS); the errors of FileSystemProbe::Check. May wait for the
  /// file system of the file, not for long.
  absl::StatusOr<DepositedFile> Find(const std::string& ticket, const std::string& field);
  size_t count();

 private:
  class Shelf;
  class DepositGrant;
  const std::shared_ptr<Shelf> shelf_;  // grants keep it
  FileSystemProbe probe_;
};

}  // namespace octavo::volume_import
