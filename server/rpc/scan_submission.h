#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "octavo/v1/scan.pb.h"

#include "server/engine/engine.h"
#include "server/model/scan_spec.h"
#include "server/security/owner.h"

namespace octavo::rpc {

/// The scan that a request wants, as `owner`'s. What the session says is left to the caller.
absl::StatusOr<model::ScanSpec> DecodeSubmission(const v1::SubmitScanRequest& request,
                                                 const security::Owner& owner);

/// What the server keeps of a request for a scan that goes on after a restart; empty for all
/// others. The secret of the session is left out: sessions end with the server.
std::string BytesToKeep(const v1::SubmitScanRequest& request);

/// Begins the scan of an earlier daemon again, from the bytes that were kept.
absl::StatusOr<model::ScanStatus> ResumeScan(engine::Scans& scans,
                                             const engine::ScanToResume& earlier);

}  // namespace octavo::rpc
