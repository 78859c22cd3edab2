#pragma once

#include <memory>

#include "server/handoff/fd_socket.h"
#include "server/source/ring_port.h"

namespace octavo::source {

/// The grant behind a ring's ticket: it hands over the memory's descriptor, and the producer is
/// attached while the connection lasts.
class RingGrant final : public handoff::Grant {
 public:
  explicit RingGrant(std::shared_ptr<RingPort> port) : port_(std::move(port)) {}
  /// Answers {"ring": {"bytes": …, "attachment": …}} and the descriptor. FailedPrecondition
  /// (RING_TAKEN, SCAN_STATE).
  absl::StatusOr<handoff::Answer> Open(const handoff::Peer& peer, const nlohmann::json& request,
                                       std::shared_ptr<handoff::Link> link) override;
  void Ended(handoff::GrantEnd why) override;

 private:
  const std::shared_ptr<RingPort> port_;
  int64_t connection_ = 0;  // 0 = never attached
};

}  // namespace octavo::source
