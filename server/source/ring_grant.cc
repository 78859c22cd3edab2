#include "server/source/ring_grant.h"

#include "gpu/base/status.h"

namespace octavo::source {

absl::StatusOr<handoff::Answer> RingGrant::Open(const handoff::Peer&, const nlohmann::json&,
                                                std::shared_ptr<handoff::Link> link) {
  OCTAVO_ASSIGN_OR_RETURN(RingPort::Attachment attached, port_->Attach([link] { link->Cut(); }));
  connection_ = attached.connection;
  auto fd = std::make_shared<const UniqueFd>(std::move(attached.fd));
  return handoff::Answer{
      .message = {{"ring",
                   {{"bytes", port_->limits().total_bytes()}, {"attachment", connection_}}}},
      .fds = {fd->get()},
      .keep = fd};
}

void RingGrant::Ended(handoff::GrantEnd) {
  if (connection_ != 0) port_->Detach(connection_);
}

}  // namespace octavo::source
