#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"

#include "octavo/v1/export.pb.h"

#include "server/exports/export_store.h"

namespace octavo::rpc {

/// Names of the backends whose memory the client can map.
absl::StatusOr<std::set<std::string>> DecodeAccept(const v1::ExportRequest& request);
void EncodeExportTicket(const exports::ExportTicket& ticket, v1::ExportResponse* out);
void EncodeExport(const exports::ExportStatus& status, v1::ExportStatus* out);

}  // namespace octavo::rpc
