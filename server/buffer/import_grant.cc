#include "server/buffer/import_grant.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_importer.h"

namespace octavo::buffer {

absl::StatusOr<handoff::Answer> ImportGrant::OpenWith(const UniqueFd& descriptor,
                                                      const handoff::Peer& peer,
                                                      const handoff::v1::Present&,
                                                      std::shared_ptr<handoff::Link> link) {
  OCTAVO_ASSIGN_OR_RETURN(const model::BufferStatus buffer,
                          importer_.Open(buffer_, descriptor, peer, std::move(link)));
  handoff::Answer answer;
  handoff::v1::Imported* imported = answer.message.mutable_imported();
  imported->set_name(buffer_);
  // The numbers of the kinds are the same (a test compares their names).
  imported->set_kind(static_cast<handoff::v1::MemoryKind>(buffer.imported->kind));
  imported->set_mapped_bytes(static_cast<uint64_t>(buffer.imported->mapped_bytes));
  imported->set_version(buffer.replicas.front().version);
  return answer;
}

absl::StatusOr<handoff::Answer> ImportGrant::Message(const handoff::v1::ClientMessage& request) {
  if (!request.has_publish()) {
    return handoff::Refusal(absl::StatusCode::kInvalidArgument, Reason::kProtocol,
                            "a grant of an import takes Publish and End");
  }
  OCTAVO_ASSIGN_OR_RETURN(const uint64_t version, importer_.Publish(buffer_));
  handoff::Answer answer;
  answer.message.mutable_published()->set_version(version);
  return answer;
}

void ImportGrant::Ended(handoff::GrantEnd why) { importer_.End(buffer_, why); }

}  // namespace octavo::buffer
