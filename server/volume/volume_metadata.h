#pragma once

#include <string>

#include "server/model/status_types.h"
#include "server/storage/formats/volume_meta.h"

namespace octavo::volume {

/// How the A-scans of a volume were acquired; null if no scan acquired it, or nothing is known of
/// that.
const pattern::Pattern* PatternOf(const model::VolumeStatus& volume);
/// Everything a committed file says of `volume`: geometry, levels, how it was acquired and
/// processed, what is missing.
storage::VolumeMeta MetaOf(const model::VolumeStatus& volume, const std::string& software,
                           const std::string& device_model);

}  // namespace octavo::volume
