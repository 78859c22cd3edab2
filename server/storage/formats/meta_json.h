#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/storage/formats/volume_meta.h"

namespace octavo::storage {

/// All of `meta` as JSON: used as the `octavo` attribute of a Zarr group, as the side file of a
/// single file, and inside formats that have a place for it.
nlohmann::json MetaJson(const VolumeMeta& meta);
/// On one line in ASCII.
std::string TextOf(const nlohmann::json& json);
inline std::string MetaText(const VolumeMeta& meta) { return TextOf(MetaJson(meta)); }
/// Parses the text that MetaJson wrote. DataLoss names the member that is missing or wrong.
absl::StatusOr<VolumeMeta> MetaFromJson(const nlohmann::json& json);

}  // namespace octavo::storage
