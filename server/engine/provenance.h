#pragma once

#include <string>

#include "server/engine/status_types.h"
#include "server/storage/volume_meta.h"

namespace octavo::engine {

/// Everything a committed file says of `volume`: geometry, levels, how it was acquired and processed, what is missing.
storage::VolumeMeta MetaOf(const VolumeStatus& volume, const std::string& software, const std::string& device_model);

}  // namespace octavo::engine
