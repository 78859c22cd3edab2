#include "server/engine/volume_annotations.h"

#include <algorithm>
#include <vector>

#include "server/volume/volume_metadata.h"

namespace octavo::engine {

storage::VolumeMeta VolumeAnnotations::Of(const model::VolumeStatus& volume) const {
  if (volume.recovered) return *volume.recovered_meta;
  std::string model;
  for (int d = 0; d < devices_.size(); ++d) {
    if (devices_.names().Name(d) == volume.device) model = devices_.device(d).info().model;
  }
  storage::VolumeMeta meta = volume::MetaOf(volume, software_, model);
  const auto add = [&meta](const std::vector<std::string>& warnings) {
    for (const std::string& warning : warnings) {
      if (std::ssize(meta.warnings) == storage::kMostWarnings) return;
      if (std::find(meta.warnings.begin(), meta.warnings.end(), warning) == meta.warnings.end())
        meta.warnings.push_back(warning);
    }
  };
  if (const auto session = scans_->Find(volume.scan); session.ok()) {
    add((*session)->WarningsOfData());
  } else if (volume.origin != nullptr) {
    add(volume.origin->warnings);
  }
  add(volume.job_warnings);
  return meta;
}

storage::VolumeMeta VolumeAnnotations::OfDevice(int device) const {
  return {.device_model = devices_.device(device).info().model, .software = software_};
}

}  // namespace octavo::engine
