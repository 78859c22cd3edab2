#include "server/engine/exports.h"

#include <utility>

#include "absl/strings/match.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"

namespace octavo::engine {

absl::StatusOr<exports::ExportTicket> Exports::Export(const model::ExportSpec& spec,
                                                      const model::Caller& caller,
                                                      const exports::ExportPeer& peer) {
  OCTAVO_RETURN_IF_ERROR(store_.Admit(peer));
  if (absl::StartsWith(spec.name, "volumes/")) {
    OCTAVO_ASSIGN_OR_RETURN(exports::ExportedMemory memory,
                            store_.OfVolume(spec.name, spec.replica));
    return store_.Issue(std::move(memory), peer);
  }
  if (absl::StartsWith(spec.name, "scans/")) {
    OCTAVO_ASSIGN_OR_RETURN(const handoff::Ticket ticket, feeds_.Issue(spec.name, peer));
    exports::ExportTicket out{.ticket = ticket, .status = {}, .memory = {}};
    out.status.name = spec.name;
    return out;
  }
  return buffers_.Export(spec, caller, peer);
}

}  // namespace octavo::engine
