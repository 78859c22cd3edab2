#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/security/principal.h"
#include "server/source/attachable_ring.h"

namespace octavo::handoff {
class FdSocket;
}

namespace octavo::engine {

/// How a process connects to a ring: the socket's path, the nonce that it presents there, and the
/// layout of the ring.
struct RingTicket {
  std::string path, nonce;
  double expires_seconds = 0;
  int64_t total_bytes = 0, slots = 0, block_records = 0, record_bytes = 0, total_records = 0;
};

/// FailedPrecondition (HANDOFF_DISABLED) if there is no socket.
absl::Status CheckHandoff(const handoff::FdSocket* socket);
/// A ticket for the ring, for processes of user `uid` (nothing = any that may connect); the layout
/// is the caller's to fill in. Errors as of CheckHandoff and FdSocket::Issue.
absl::StatusOr<RingTicket> IssueRingTicket(handoff::FdSocket* socket,
                                           std::shared_ptr<source::AttachableRing> ring,
                                           std::optional<uint32_t> uid,
                                           const security::Principal& caller);

}  // namespace octavo::engine
