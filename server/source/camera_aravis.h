#pragma once

// Private to camera_aravis.cc and camera_aravis_source.cc: owners of Aravis' objects, and the
// preparation of a camera.

#include <arv.h>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/model/scan_spec.h"
#include "server/source/camera_pixels.h"

namespace octavo::source::aravis {

struct Unref {
  void operator()(gpointer object) const { g_object_unref(object); }
};
template <class T>
using Object = std::unique_ptr<T, Unref>;

/// GLib's out-parameter for errors.
class Error {
 public:
  ~Error() { g_clear_error(&error_); }
  GError** out() {
    g_clear_error(&error_);
    return &error_;
  }
  bool is_set() const { return error_ != nullptr; }
  std::string text() const { return error_ == nullptr ? "" : error_->message; }

 private:
  GError* error_ = nullptr;
};

// Aravis keeps one list of interfaces and devices for the process, without a lock.
extern Mutex library_mutex;
extern std::set<std::string> cameras_in_use ABSL_GUARDED_BY(library_mutex);

/// Unavailable (CAMERA_ERROR): the action and the library's error.
absl::Status Broken(const std::string& camera, const std::string& doing, const Error& error);

/// An open camera. `id` is its name in the list.
struct OpenedCamera {
  std::string id;
  Object<ArvCamera> camera;
};

/// Opens the camera that a request means; NotFound (NO_CAMERA), FailedPrecondition (CAMERA_BUSY),
/// InvalidArgument if it names none and there are several. Takes a second if it names no camera or
/// a new one.
absl::StatusOr<OpenedCamera> OpenLocked(const std::string& wanted)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(library_mutex);

/// The records that the camera would deliver for a request.
struct Shape {
  int width = 0, height = 0, x = 0, y = 0;
  const PixelFormat* format = nullptr;
  double frame_rate_hz = 0;  // 0 = unknown
};

/// Checks the request against the camera's features. Writes nothing to the camera.
absl::StatusOr<Shape> Check(const OpenedCamera& opened, const model::ScanSpec& spec,
                            const model::CameraSource& source);

/// Configures the camera as requested, and reads the settings back to verify them.
absl::Status Configure(const OpenedCamera& opened, const model::CameraSource& source,
                       const Shape& shape);

}  // namespace octavo::source::aravis
