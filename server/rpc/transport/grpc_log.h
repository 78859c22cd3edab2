#pragma once

namespace octavo::rpc {

/// What gRPC itself has to say goes into our log, as one record a line like all else. Before the
/// first use of gRPC; again does no harm.
void LogWhatGrpcSays();

}  // namespace octavo::rpc
