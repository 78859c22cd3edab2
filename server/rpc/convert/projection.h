#pragma once

#include "absl/status/statusor.h"

#include "octavo/v1/projection.pb.h"

#include "server/model/projection_spec.h"

namespace octavo::rpc {

/// Errors name fields below "projection.".
absl::StatusOr<model::ProjectionSpec> DecodeProjection(const v1::ProjectionJob& in);
void EncodeProjection(const model::ProjectionSpec& in, v1::ProjectionJob* out);

}  // namespace octavo::rpc
