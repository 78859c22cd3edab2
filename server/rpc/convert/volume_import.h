#pragma once

#include "absl/status/statusor.h"

#include "octavo/v1/ingest.pb.h"
#include "octavo/v1/job.pb.h"

#include "server/model/job_spec.h"

namespace octavo::rpc {

/// Errors name fields below "volume_import.".
absl::StatusOr<model::ImportSpec> DecodeImport(const v1::ImportJob& in);
void EncodeImport(const model::ImportSpec& in, v1::ImportJob* out);
/// The job of an ImportVolume.
v1::JobSpec JobSpecOf(const v1::ImportVolumeRequest& in);

}  // namespace octavo::rpc
