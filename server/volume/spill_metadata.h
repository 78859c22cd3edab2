#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/model/status_types.h"
#include "server/storage/formats/volume_meta.h"
#include "server/storage/spill/spill_folder.h"

namespace octavo::volume {

/// The metadata in a spill file, so that a later process can hold, show and commit the volume.
nlohmann::json AboutOf(const model::VolumeStatus& volume, const storage::VolumeMeta& meta);
/// Restores the volume's status from the output of AboutOf; recovered_meta carries the metadata for
/// its files. DataLoss names the missing or wrong part.
absl::StatusOr<model::VolumeStatus> StatusFromAbout(const nlohmann::json& about);
/// The same of a file that an earlier process left. DataLoss, too, if the file has not the name and
/// size of its volume's: a copy of another one.
absl::StatusOr<model::VolumeStatus> StatusOfFile(const storage::SpillFolder::Found& found);

}  // namespace octavo::volume
