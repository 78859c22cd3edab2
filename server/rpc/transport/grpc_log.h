#pragma once

#include <functional>

#include "absl/strings/string_view.h"

namespace octavo::rpc {

/// Redirects gRPC's own messages to our log, one record per line. Call it before the first use of
/// gRPC; repeated calls do no harm.
void LogWhatGrpcSays();

/// From now on gRPC's messages about connections that fail at TLS go to `teller` and not to the
/// log: whoever connects can cause as many as they like. Null = to the log again; when it returns,
/// no call of the earlier teller is running.
void TellTlsFailures(std::function<void(absl::string_view error)> teller);

}  // namespace octavo::rpc
