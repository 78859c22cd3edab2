#pragma once

#include <string>

#include "server/model/status_types.h"
#include "server/storage/formats/volume_meta.h"

namespace octavo::volume {

/// The pattern in which a volume's A-scans were acquired; null if no scan acquired it or the
/// pattern is unknown.
const pattern::Pattern* PatternOf(const model::VolumeStatus& volume);
/// All metadata in a committed file of `volume`: geometry, levels, acquisition, processing, and
/// missing A-scans.
storage::VolumeMeta MetaOf(const model::VolumeStatus& volume, const std::string& software,
                           const std::string& device_model);

}  // namespace octavo::volume
