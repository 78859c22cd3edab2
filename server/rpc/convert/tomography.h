#pragma once

#include "absl/status/statusor.h"

#include "octavo/v1/tomography.pb.h"

#include "server/model/tomography_spec.h"

namespace octavo::rpc {

/// Errors name fields below "tomography.".
absl::StatusOr<engine::TomographySpec> DecodeTomography(const v1::TomographyJob& in);
void EncodeTomography(const engine::TomographySpec& in, v1::TomographyJob* out);
void EncodeTomographyReport(const engine::TomographyReport& in, v1::TomographyReport* out);

}  // namespace octavo::rpc
