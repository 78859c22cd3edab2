#include "server/engine/ring_ticket.h"

#include <utility>

#include "gpu/base/status.h"
#include "server/handoff/fd_socket.h"
#include "server/security/rights.h"
#include "server/security/shares.h"
#include "server/source/ring_grant.h"

namespace octavo::engine {

absl::Status CheckHandoff(const handoff::FdSocket* socket) {
  if (socket != nullptr) return absl::OkStatus();
  return WithInfo(absl::FailedPreconditionError(
                      "this server has no socket that hands descriptors over (handoff.unix)"),
                  {.reason = Reason::kHandoffDisabled, .field = "", .numbers = {}});
}

absl::StatusOr<RingTicket> IssueRingTicket(handoff::FdSocket* socket,
                                           std::shared_ptr<source::AttachableRing> ring,
                                           std::optional<uint32_t> uid,
                                           const security::Principal& caller) {
  OCTAVO_RETURN_IF_ERROR(CheckHandoff(socket));
  const int64_t total_bytes = ring->total_bytes();
  OCTAVO_ASSIGN_OR_RETURN(const handoff::Ticket ticket,
                          socket->Issue(std::make_shared<source::RingGrant>(std::move(ring)), uid,
                                        {.payer = security::ShareOf(security::OwnerOf(caller)),
                                         .principal = caller.name,
                                         .project = caller.project}));
  return RingTicket{.path = ticket.path,
                    .nonce = ticket.nonce,
                    .expires_seconds = ticket.expires_seconds,
                    .total_bytes = total_bytes};
}

}  // namespace octavo::engine
