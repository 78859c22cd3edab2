#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo::source {

/// All fields as in octavo.v1.CameraInfo.
struct CameraInfo {
  std::string id, vendor, model, serial, protocol, address;
  bool in_use = false;
};

/// A kind of source, whether this build has it, and why (not).
struct SourceKind {
  std::string name;
  bool available = true;
  std::string reason;
};
std::vector<SourceKind> SourceKinds();

/// Sets the interfaces on which cameras are searched from now on, by their names in Aravis.
/// Process-wide, as in Aravis.
void SetCameraInterfaces(const std::vector<std::string>& interfaces);

/// Finds the cameras that answer now. Takes about a second. Unimplemented (NO_CAMERA_SUPPORT) in a
/// build without Aravis.
absl::StatusOr<std::vector<CameraInfo>> ListCameras();

/// Whether this build can use cameras, and why (not).
SourceKind CameraSupport();

}  // namespace octavo::source
