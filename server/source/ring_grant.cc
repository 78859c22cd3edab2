#include "server/source/ring_grant.h"

#include "gpu/base/status.h"

namespace octavo::source {

absl::StatusOr<handoff::Answer> RingGrant::Open(const handoff::Peer&, const handoff::v1::Present&,
                                                std::shared_ptr<handoff::Link> link) {
  OCTAVO_ASSIGN_OR_RETURN(AttachableRing::Attachment attached,
                          ring_->Attach({.cut = [link] { link->Cut(); },
                                         .has_gone = [link] { return link->HasGone(); }}));
  connection_ = attached.connection;
  const auto fd = std::make_shared<const UniqueFd>(std::move(attached.fd));
  handoff::Answer answer{.message = {}, .descriptor = fd->get(), .keep = fd};
  handoff::v1::Ring* ring = answer.message.mutable_ring();
  ring->set_byte_size(static_cast<uint64_t>(ring_->total_bytes()));
  ring->set_attachment(connection_);
  return answer;
}

void RingGrant::Ended(handoff::GrantEnd) {
  if (connection_ != 0) ring_->Detach(connection_);
}

}  // namespace octavo::source
