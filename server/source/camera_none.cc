// Cameras in a build without Aravis: there are none, and every call says why.

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/source/camera.h"
#include "server/source/sources.h"

namespace octavo::source {
namespace {

absl::Status NoSupport() {
  return WithInfo(absl::UnimplementedError(
                      absl::StrCat("this server has no camera source: ", CameraSupport().reason)),
                  {.reason = Reason::kNoCameraSupport, .field = "camera", .numbers = {}});
}

}  // namespace

SourceKind CameraSupport() {
  return {.name = "camera", .available = false, .reason = OCTAVO_ARAVIS_REASON};
}
void SetCameraInterfaces(const std::vector<std::string>&) {}
absl::StatusOr<std::vector<CameraInfo>> ListCameras() { return NoSupport(); }
absl::StatusOr<model::SourceTraits> InspectCamera(const model::ScanSpec&,
                                                  const model::CameraSource&) {
  return NoSupport();
}
absl::StatusOr<std::unique_ptr<Source>> OpenCamera(const model::ScanSpec&,
                                                   const model::CameraSource&, const Clock*) {
  return NoSupport();
}

}  // namespace octavo::source
