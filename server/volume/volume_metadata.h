#pragma once

#include <optional>
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

/// The name that files have: "db", of kDefault, too.
const char* NameOfValue(model::ValueKind value);
/// The value with this name, or nullopt if there is none.
std::optional<model::ValueKind> ValueNamed(const std::string& name);
/// The reverse of MetaOf, as far as files and all volumes have it in common: title, labels,
/// geometry, type, levels, times of the acquisition, missing A-scans.
void DescribeBy(const storage::VolumeMeta& meta, model::VolumeStatus* volume);

}  // namespace octavo::volume
