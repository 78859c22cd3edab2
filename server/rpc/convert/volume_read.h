#pragma once

#include "absl/status/statusor.h"

#include "octavo/v1/volume.pb.h"

#include "server/model/volume_read.h"

namespace octavo::rpc {

/// What ReadVolume is to read. `chunk_bytes` is decoded by DecodeChunkBytes.
absl::StatusOr<model::VolumeRead> DecodeVolumeRead(const v1::ReadVolumeRequest& request);

}  // namespace octavo::rpc
