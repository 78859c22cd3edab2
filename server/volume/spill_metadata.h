#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/model/status_types.h"
#include "server/storage/formats/volume_meta.h"

namespace octavo::volume {

/// What a spill file says of its volume, so that a later process can hold, show and commit it.
nlohmann::json AboutOf(const model::VolumeStatus& volume, const storage::VolumeMeta& meta);
/// The volume as AboutOf told it; recovered_meta carries what its files are to say. DataLoss names
/// what is missing or wrong.
absl::StatusOr<model::VolumeStatus> StatusFromAbout(const nlohmann::json& about);

}  // namespace octavo::volume
