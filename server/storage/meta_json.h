#pragma once

#include "nlohmann/json.hpp"
#include "server/storage/volume_meta.h"

namespace octavo::storage {

/// All of `meta` as JSON: the `octavo` attribute of a Zarr group, the side file of a .npy.
nlohmann::json MetaJson(const VolumeMeta& meta);

}  // namespace octavo::storage
