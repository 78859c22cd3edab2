#pragma once

#include <string>

#include "server/engine/scan_registry.h"
#include "server/memory/device_set.h"
#include "server/storage/formats/volume_meta.h"

namespace octavo::engine {

/// The metadata that files carry for a volume in addition to its voxels: its description, the
/// software and device that made it, and the warnings of its scan or job.
class VolumeAnnotations {
 public:
  VolumeAnnotations(std::string software, memory::DeviceSet devices, ScanRegistry* scans)
      : software_(std::move(software)), devices_(std::move(devices)), scans_(scans) {}
  storage::VolumeMeta Of(const model::VolumeStatus& volume) const;
  /// The part about software and device alone, for an array that is no volume.
  storage::VolumeMeta OfDevice(int device) const;

 private:
  const std::string software_;
  const memory::DeviceSet devices_;
  ScanRegistry* const scans_;
};

}  // namespace octavo::engine
