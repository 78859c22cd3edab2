#pragma once

#include <optional>
#include <string>

#include "octavo/v1/job.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// Whether two paths on the server name one place, as far as their text tells: a relative path lies
/// below a root of the server, so an absolute one that ends with it counts.
bool SamePath(const std::string& a, const std::string& b);

/// Looks for a job whose result the server will write, or is writing, to `destination`
/// (JobSpec.commit): one that has not ended, or is done and not written yet. A client that was
/// killed leaves such a job. Sets `found`, to the newest of them or to nothing.
grpc::Status FindPendingResult(Session& session, const std::string& destination,
                               std::optional<v1::Job>* found);

}  // namespace octavo::cli
