#pragma once

namespace octavo::rpc {

/// Redirects gRPC's own messages to our log, one record per line. Call it before the first use of
/// gRPC; repeated calls do no harm.
void LogWhatGrpcSays();

}  // namespace octavo::rpc
