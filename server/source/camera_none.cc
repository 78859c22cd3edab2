// Cameras in a build without Aravis: there are none, and everybody is told why.

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/source/camera.h"
#include "server/source/sources.h"

namespace octavo::engine {
namespace {

absl::Status NoSupport() {
  return WithInfo(absl::UnimplementedError(absl::StrCat("this server has no camera source: ", CameraSupport().reason)),
                  {.reason = "NO_CAMERA_SUPPORT", .field = "camera", .numbers = {}});
}

}  // namespace

SourceKind CameraSupport() { return {.name = "camera", .available = false, .reason = OCTAVO_ARAVIS_REASON}; }
void SetCameraInterfaces(const std::vector<std::string>&) {}
absl::StatusOr<std::vector<CameraInfo>> ListCameras() { return NoSupport(); }
absl::StatusOr<SourceTraits> InspectCamera(const ScanSpec&, const CameraSource&) { return NoSupport(); }
absl::StatusOr<std::unique_ptr<Source>> OpenCamera(const ScanSpec&, const CameraSource&, const Clock*) { return NoSupport(); }

}  // namespace octavo::engine
