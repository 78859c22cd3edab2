#pragma once

#include <memory>

#include "server/handoff/fd_socket.h"
#include "server/source/attachable_ring.h"

namespace octavo::source {

/// The grant behind a ring's ticket: it hands over the memory's descriptor, and the producer is
/// attached while the connection lasts.
class RingGrant final : public handoff::Grant {
 public:
  explicit RingGrant(std::shared_ptr<AttachableRing> ring) : ring_(std::move(ring)) {}
  handoff::v1::Purpose purpose() const override { return handoff::v1::PURPOSE_RING; }
  /// Answers with a Ring and the descriptor. FailedPrecondition (RING_TAKEN, SCAN_STATE,
  /// JOB_STATE).
  absl::StatusOr<handoff::Answer> Open(const handoff::Peer& peer,
                                       const handoff::v1::Present& request,
                                       std::shared_ptr<handoff::Link> link) override;
  void Ended(handoff::GrantEnd why) override;

 private:
  const std::shared_ptr<AttachableRing> ring_;
  int64_t connection_ = 0;  // 0 = never attached
};

}  // namespace octavo::source
