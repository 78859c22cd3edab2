#pragma once

#include <memory>
#include <string>
#include <utility>

#include "server/handoff/fd_socket.h"

namespace octavo::buffer {

class BufferImporter;

/// The grant behind the ticket of an import: it takes the memory's descriptor, and the buffer lives
/// no longer than the connection.
class ImportGrant final : public handoff::Grant {
 public:
  ImportGrant(BufferImporter* importer, std::string buffer)
      : importer_(*importer), buffer_(std::move(buffer)) {}
  handoff::v1::Purpose purpose() const override { return handoff::v1::PURPOSE_IMPORT; }
  /// Answers with Imported. The errors of BufferImporter::Open.
  absl::StatusOr<handoff::Answer> OpenWith(const UniqueFd& descriptor, const handoff::Peer& peer,
                                           const handoff::v1::Present& request,
                                           std::shared_ptr<handoff::Link> link) override;
  /// Publish. NotFound (NO_BUFFER).
  absl::StatusOr<handoff::Answer> Message(const handoff::v1::ClientMessage& request) override;
  void Ended(handoff::GrantEnd why) override;

 private:
  BufferImporter& importer_;
  const std::string buffer_;
};

}  // namespace octavo::buffer
