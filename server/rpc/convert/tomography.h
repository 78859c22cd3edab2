#pragma once

#include "absl/status/statusor.h"

#include "octavo/v1/tomography.pb.h"

#include "server/model/tomography_spec.h"

namespace octavo::rpc {

/// Errors name fields below "tomography.".
absl::StatusOr<model::TomographySpec> DecodeTomography(const v1::TomographyJob& in);
void EncodeTomography(const model::TomographySpec& in, v1::TomographyJob* out);
void EncodeTomographyReport(const model::TomographyReport& in, v1::TomographyReport* out);

}  // namespace octavo::rpc
