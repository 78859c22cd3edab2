// Prepares a GenICam camera (GigE Vision, USB3 Vision): find, open, check, configure.
// camera_aravis_source.cc reads its records.

#include "server/source/camera_aravis.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/source/camera.h"
#include "server/source/sources.h"

namespace octavo::source {
namespace aravis {

Mutex library_mutex;
std::set<std::string> cameras_in_use;

namespace {

std::vector<CameraInfo> ListLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(library_mutex) {
  arv_update_device_list();
  const auto text = [](const char* s) { return std::string(s == nullptr ? "" : s); };
  std::vector<CameraInfo> list;
  for (unsigned i = 0; i < arv_get_n_devices(); ++i) {
    CameraInfo info{.id = text(arv_get_device_id(i)),
                    .vendor = text(arv_get_device_vendor(i)),
                    .model = text(arv_get_device_model(i)),
                    .serial = text(arv_get_device_serial_nbr(i)),
                    .protocol = text(arv_get_device_protocol(i)),
                    .address = text(arv_get_device_address(i))};
    if (info.address == "0.0.0.0") info.address.clear();
    info.in_use = cameras_in_use.count(info.id) > 0;
    list.push_back(std::move(info));
  }
  return list;
}

// Finds the camera that the request means; takes a second if the request names no camera or a new
// one.
absl::StatusOr<std::string> FindLocked(const std::string& wanted)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(library_mutex) {
  if (!wanted.empty()) {
    for (unsigned i = 0; i < arv_get_n_devices(); ++i) {
      if (wanted == arv_get_device_id(i)) return wanted;
    }
  }
  const auto list = ListLocked();
  std::vector<std::string> ids;
  for (const auto& info : list) {
    if (info.id == wanted) return wanted;
    ids.push_back(info.id);
  }
  if (wanted.empty() && ids.size() == 1) return ids[0];
  const std::string there =
      ids.empty() ? "none answers" : absl::StrCat("there are ", absl::StrJoin(ids, ", "));
  if (wanted.empty() && !ids.empty())
    return InvalidField("camera.id", absl::StrCat("is not given; ", there));
  return WithInfo(
      absl::NotFoundError(absl::StrCat("camera.id: no camera '", wanted, "'; ", there)),
      {.reason = Reason::kNoCamera, .field = "camera.id", .numbers = {{"retryable", "true"}}});
}

absl::Status Within(const char* field, int64_t value, int64_t lo, int64_t hi, int64_t step) {
  if (value >= lo && value <= hi && (step <= 1 || (value - lo) % step == 0))
    return absl::OkStatus();
  return FieldNotAllowed(
      field, value,
      absl::StrCat(lo, " to ", hi, step > 1 ? absl::StrCat(" in steps of ", step) : ""));
}

// Of an offset that was not given, the value is what the camera is set to.
absl::Status OffsetWithin(const char* field, const std::optional<int64_t>& given, int64_t value,
                          int64_t most) {
  if (given.has_value() || (value >= 0 && value <= most)) return Within(field, value, 0, most, 1);
  return InvalidField(field, absl::StrCat("is not given, and the camera is set to ", value,
                                          "; this size allows 0 to ", most));
}

absl::Status Within(const char* field, double value, double lo, double hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; the camera allows ", lo, " to ", hi));
}

std::vector<std::string> Strings(const char** list, guint count) {
  std::vector<std::string> strings;
  for (guint i = 0; list != nullptr && i < count; ++i) strings.emplace_back(list[i]);
  g_free(list);
  return strings;
}

bool Has(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

absl::Status Broken(const std::string& camera, const std::string& doing, const Error& error) {
  return WithInfo(
      absl::UnavailableError(absl::StrCat("camera ", camera, ": ", doing, ": ", error.text())),
      {.reason = Reason::kCameraError, .field = "camera.id", .numbers = {{"retryable", "true"}}});
}

absl::StatusOr<OpenedCamera> OpenLocked(const std::string& wanted)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(library_mutex) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string id, FindLocked(wanted));
  if (cameras_in_use.count(id) > 0) {
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat("camera ", id, " is used by another scan; put both scans into one queue")),
        {.reason = Reason::kCameraBusy, .field = "camera.id", .numbers = {{"retryable", "true"}}});
  }
  Error error;
  Object<ArvCamera> camera(arv_camera_new(id.c_str(), error.out()));
  if (camera == nullptr || error.is_set()) return Broken(id, "cannot be opened", error);
  return OpenedCamera{.id = id, .camera = std::move(camera)};
}

absl::StatusOr<Shape> Check(const OpenedCamera& opened, const model::ScanSpec& spec,
                            const model::CameraSource& s) {
  ArvCamera* camera = opened.camera.get();
  Error error;
  Shape shape;
  guint count = 0;
  const char** list =
      arv_camera_dup_available_pixel_formats_as_strings(camera, &count, error.out());
  if (error.is_set()) return Broken(opened.id, "pixel formats", error);
  const std::vector<std::string> offered = Strings(list, count);
  std::string format = s.pixel_format;
  if (format.empty()) {
    const char* now = arv_camera_get_pixel_format_as_string(camera, error.out());
    if (error.is_set()) return Broken(opened.id, "pixel format", error);
    format = now;
  }
  shape.format = FindPixelFormat(format);
  if (shape.format == nullptr || !Has(offered, format)) {
    std::vector<std::string> both;
    std::copy_if(offered.begin(), offered.end(), std::back_inserter(both),
                 [](const auto& name) { return FindPixelFormat(name) != nullptr; });
    return InvalidField("camera.pixel_format",
                        absl::StrCat("is ", format, "; this camera and Octavo both know ",
                                     absl::StrJoin(both, ", ")));
  }

  gint lo = 0, hi = 0;
  arv_camera_get_region(camera, &shape.x, &shape.y, &shape.width, &shape.height, error.out());
  if (error.is_set()) return Broken(opened.id, "region", error);
  gint sensor_width = 0, sensor_height = 0;
  arv_camera_get_sensor_size(camera, &sensor_width, &sensor_height, error.out());
  if (error.is_set()) return Broken(opened.id, "sensor size", error);
  const int64_t samples = spec.acquisition.samples_per_record;
  if (s.width != 0 && samples != 0 && s.width != samples) {
    return InvalidField("camera.width",
                        absl::StrCat("is ", s.width, " and acquisition.samples_per_record ",
                                     samples, "; they must be the same"));
  }
  const int64_t width = s.width != 0   ? s.width
                        : samples != 0 ? samples
                                       : shape.width,
                height = s.height != 0 ? s.height : shape.height;
  arv_camera_get_width_bounds(camera, &lo, &hi, error.out());
  if (error.is_set()) return Broken(opened.id, "width", error);
  OCTAVO_RETURN_IF_ERROR(Within(
      s.width == 0 && samples != 0 ? "acquisition.samples_per_record" : "camera.width", width, lo,
      std::max(hi, sensor_width), arv_camera_get_width_increment(camera, error.out())));
  arv_camera_get_height_bounds(camera, &lo, &hi, error.out());
  if (error.is_set()) return Broken(opened.id, "height", error);
  OCTAVO_RETURN_IF_ERROR(Within("camera.height", height, lo, std::max(hi, sensor_height),
                                arv_camera_get_height_increment(camera, error.out())));
  const int64_t x = s.offset_x.value_or(shape.x), y = s.offset_y.value_or(shape.y);
  OCTAVO_RETURN_IF_ERROR(OffsetWithin("camera.offset_x", s.offset_x, x, sensor_width - width));
  OCTAVO_RETURN_IF_ERROR(OffsetWithin("camera.offset_y", s.offset_y, y, sensor_height - height));
  shape.x = static_cast<int>(x);
  shape.y = static_cast<int>(y);
  shape.width = static_cast<int>(width);
  shape.height = static_cast<int>(height);
  if (shape.format->packed && shape.width % 2 != 0) {
    return InvalidField(
        "camera.width",
        absl::StrCat("is ", shape.width, "; ", shape.format->name,
                     " packs two pixels into three bytes, so that it must be even"));
  }

  double least = 0, most = 0;
  if (s.exposure_us != 0) {
    arv_camera_get_exposure_time_bounds(camera, &least, &most, error.out());
    if (error.is_set())
      return InvalidField("camera.exposure_us",
                          absl::StrCat("is given, and the camera has none: ", error.text()));
    OCTAVO_RETURN_IF_ERROR(Within("camera.exposure_us", s.exposure_us, least, most));
  }
  if (s.gain.has_value()) {
    arv_camera_get_gain_bounds(camera, &least, &most, error.out());
    if (error.is_set())
      return InvalidField("camera.gain",
                          absl::StrCat("is given, and the camera has none: ", error.text()));
    OCTAVO_RETURN_IF_ERROR(Within("camera.gain", *s.gain, least, most));
  }
  if (s.frame_rate_hz != 0) {
    arv_camera_get_frame_rate_bounds(camera, &least, &most, error.out());
    if (error.is_set())
      return InvalidField("camera.frame_rate_hz",
                          absl::StrCat("is given, and the camera has none: ", error.text()));
    OCTAVO_RETURN_IF_ERROR(Within("camera.frame_rate_hz", s.frame_rate_hz, least, most));
  }
  if (!s.trigger_source.empty()) {
    list = arv_camera_dup_available_trigger_sources(camera, &count, error.out());
    const auto sources = error.is_set() ? std::vector<std::string>() : Strings(list, count);
    if (!Has(sources, s.trigger_source)) {
      return InvalidField("camera.trigger_source",
                          absl::StrCat("is ", s.trigger_source, "; allowed ",
                                       sources.empty() ? "none" : absl::StrJoin(sources, ", ")));
    }
  } else {
    shape.frame_rate_hz = s.frame_rate_hz;
    if (shape.frame_rate_hz == 0 && arv_camera_is_frame_rate_available(camera, error.out())) {
      shape.frame_rate_hz = arv_camera_get_frame_rate(camera, error.out());
      if (error.is_set()) shape.frame_rate_hz = 0;
    }
  }
  return shape;
}

absl::Status Configure(const OpenedCamera& opened, const model::CameraSource& s,
                       const Shape& shape) {
  ArvCamera* camera = opened.camera.get();
  Error error;
  const auto set = [&](const char* what, auto call) -> absl::Status {
    call(error.out());
    return error.is_set() ? Broken(opened.id, absl::StrCat("cannot set ", what), error)
                          : absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(set("acquisition mode", [&](GError** e) {
    arv_camera_set_acquisition_mode(camera, ARV_ACQUISITION_MODE_CONTINUOUS, e);
  }));
  OCTAVO_RETURN_IF_ERROR(set("pixel format", [&](GError** e) {
    arv_camera_set_pixel_format_from_string(camera, shape.format->name, e);
  }));
  OCTAVO_RETURN_IF_ERROR(set("region", [&](GError** e) {
    arv_camera_set_region(camera, shape.x, shape.y, shape.width, shape.height, e);
  }));
  if (s.frame_rate_hz != 0) {
    OCTAVO_RETURN_IF_ERROR(set(
        "frame rate", [&](GError** e) { arv_camera_set_frame_rate(camera, s.frame_rate_hz, e); }));
  }
  if (s.exposure_us != 0) {
    OCTAVO_RETURN_IF_ERROR(set(
        "exposure", [&](GError** e) { arv_camera_set_exposure_time(camera, s.exposure_us, e); }));
  }
  if (s.gain.has_value()) {
    OCTAVO_RETURN_IF_ERROR(
        set("gain", [&](GError** e) { arv_camera_set_gain(camera, *s.gain, e); }));
  }
  if (s.trigger_source.empty()) {
    OCTAVO_RETURN_IF_ERROR(
        set("free running", [&](GError** e) { arv_camera_clear_triggers(camera, e); }));
  } else {
    OCTAVO_RETURN_IF_ERROR(set("trigger", [&](GError** e) {
      arv_camera_set_trigger(camera, s.trigger_source.c_str(), e);
    }));
  }
  gint x = 0, y = 0, width = 0, height = 0;
  arv_camera_get_region(camera, &x, &y, &width, &height, error.out());
  if (error.is_set()) return Broken(opened.id, "region", error);
  if (width != shape.width || height != shape.height || x != shape.x || y != shape.y) {
    return InvalidField("camera.width",
                        absl::StrCat("with the region ", shape.width, " x ", shape.height, " at ",
                                     shape.x, ", ", shape.y, " was made ", width, " x ", height,
                                     " at ", x, ", ", y, " by the camera"));
  }
  return absl::OkStatus();
}

}  // namespace aravis

SourceKind CameraSupport() {
  return {.name = "camera",
          .available = true,
          .reason = absl::StrCat("Aravis ", arv_get_major_version(), ".", arv_get_minor_version(),
                                 ".", arv_get_micro_version())};
}

void SetCameraInterfaces(const std::vector<std::string>& interfaces) {
  MutexLock lock(aravis::library_mutex);
  for (unsigned i = 0; i < arv_get_n_interfaces(); ++i) {
    const char* id = arv_get_interface_id(i);
    if (aravis::Has(interfaces, id)) {
      arv_enable_interface(id);
    } else {
      arv_disable_interface(id);
    }
  }
}

absl::StatusOr<std::vector<CameraInfo>> ListCameras() {
  MutexLock lock(aravis::library_mutex);
  return aravis::ListLocked();
}

absl::StatusOr<model::SourceTraits> InspectCamera(const model::ScanSpec& spec,
                                                  const model::CameraSource& given) {
  const model::CameraSource s = WithDefaults(given);
  for (const auto& [field, value] : {std::pair{"camera.exposure_us", s.exposure_us},
                                     std::pair{"camera.frame_rate_hz", s.frame_rate_hz}}) {
    if (!std::isfinite(value) || value < 0) return FieldNotAllowed(field, value, ">= 0");
  }
  if (s.gain.has_value() && !std::isfinite(*s.gain))
    return FieldNotAllowed("camera.gain", *s.gain, "finite numbers");
  if (!std::isfinite(s.frame_timeout_s) || s.frame_timeout_s > 1e9) {
    return FieldNotAllowed("camera.frame_timeout", s.frame_timeout_s,
                           "at most 1e9; negative = never");
  }
  if (s.buffers < 2 || s.buffers > 1024)
    return FieldNotAllowed("camera.buffers", given.buffers, "0 (16), 2 to 1024");
  if (spec.acquisition.channels > 1)
    return InvalidField("acquisition.channels", absl::StrCat("is ", spec.acquisition.channels,
                                                             "; a camera's lines have 1"));
  if (spec.acquisition.packing != math::Packing::kNone)
    return InvalidField("acquisition.raw_type",
                        "is packed; a camera's packed pixels are stored as u16");
  MutexLock lock(aravis::library_mutex);
  OCTAVO_ASSIGN_OR_RETURN(const std::string id, aravis::FindLocked(s.id));
  aravis::Shape shape;
  if (aravis::cameras_in_use.count(id) > 0) {
    // A camera cannot be queried while it runs for another scan; its settings are then checked when
    // this scan's turn comes.
    const PixelFormat* format = FindPixelFormat(s.pixel_format);
    if (spec.queue.name.empty()) {
      return WithInfo(
          absl::FailedPreconditionError(absl::StrCat(
              "camera ", id, " is used by another scan; put both scans into one queue")),
          {.reason = Reason::kCameraBusy,
           .field = "camera.id",
           .numbers = {{"retryable", "true"}}});
    }
    if (format == nullptr)
      return InvalidField("camera.pixel_format",
                          absl::StrCat("is '", s.pixel_format,
                                       "'; it must be given while another scan uses the camera"));
    if (s.width == 0)
      return InvalidField("camera.width",
                          "is 0; it must be given while another scan uses the camera");
    shape = {.width = static_cast<int>(s.width),
             .height = static_cast<int>(s.height),
             .x = 0,
             .y = 0,
             .format = format,
             .frame_rate_hz = s.frame_rate_hz};
  } else {
    OCTAVO_ASSIGN_OR_RETURN(const aravis::OpenedCamera opened, aravis::OpenLocked(id));
    OCTAVO_ASSIGN_OR_RETURN(shape, aravis::Check(opened, spec, s));
  }
  if (spec.acquisition.raw_type_given && spec.acquisition.raw_type != shape.format->stored) {
    return InvalidField("acquisition.raw_type",
                        absl::StrCat("is ", Info(spec.acquisition.raw_type).name, "; ",
                                     shape.format->name, " is ", Info(shape.format->stored).name));
  }
  return model::SourceTraits{.samples_per_record = shape.width,
                             .raw_type = shape.format->stored,
                             .record_rate_hz = shape.frame_rate_hz * shape.height,
                             .adc_bits = shape.format->adc_bits,
                             .total_records = 0,
                             .wavelength_nm = {}};
}

}  // namespace octavo::source
