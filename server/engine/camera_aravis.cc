// GenICam cameras (GigE Vision, USB3 Vision) through Aravis. A line of an image is a record; frames are numbered by the camera, so
// that a lost one leaves a gap and never shifts what follows.

#include <algorithm>
#include <arv.h>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/engine/camera.h"
#include "server/engine/camera_pixels.h"
#include "server/engine/sources.h"

namespace octavo::engine {
namespace {

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
Mutex library_mutex;
std::set<std::string> cameras_in_use ABSL_GUARDED_BY(library_mutex);

absl::Status Broken(const std::string& camera, const std::string& doing, const Error& error) {
  return WithInfo(absl::UnavailableError(absl::StrCat("camera ", camera, ": ", doing, ": ", error.text())),
                  {.reason = "CAMERA_ERROR", .field = "camera.id", .numbers = {{"retryable", "true"}}});
}

/// An open camera. `id` is what the list calls it.
struct OpenedCamera {
  std::string id;
  Object<ArvCamera> camera;
};

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

// Which camera the request means; takes a second when it names none or one that is not known yet.
absl::StatusOr<std::string> FindLocked(const std::string& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(library_mutex) {
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
  const std::string there = ids.empty() ? "none answers" : absl::StrCat("there are ", absl::StrJoin(ids, ", "));
  if (wanted.empty() && !ids.empty()) return InvalidField("camera.id", absl::StrCat("is not given; ", there));
  return WithInfo(absl::NotFoundError(absl::StrCat("camera.id: no camera '", wanted, "'; ", there)),
                  {.reason = "NO_CAMERA", .field = "camera.id", .numbers = {{"retryable", "true"}}});
}

absl::StatusOr<OpenedCamera> OpenLocked(const std::string& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(library_mutex) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string id, FindLocked(wanted));
  if (cameras_in_use.count(id) > 0) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat("camera ", id, " is used by another scan; put both scans into one queue")),
                    {.reason = "CAMERA_BUSY", .field = "camera.id", .numbers = {{"retryable", "true"}}});
  }
  Error error;
  Object<ArvCamera> camera(arv_camera_new(id.c_str(), error.out()));
  if (camera == nullptr || error.is_set()) return Broken(id, "cannot be opened", error);
  return OpenedCamera{.id = id, .camera = std::move(camera)};
}

/// What the camera would deliver for a request.
struct Shape {
  int width = 0, height = 0, x = 0, y = 0;
  const PixelFormat* format = nullptr;
  double frame_rate_hz = 0;  // 0 = unknown
};

absl::Status Within(const char* field, int64_t value, int64_t lo, int64_t hi, int64_t step) {
  if (value >= lo && value <= hi && (step <= 1 || (value - lo) % step == 0)) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi, step > 1 ? absl::StrCat(" in steps of ", step) : ""));
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

bool Has(const std::vector<std::string>& list, const std::string& text) { return std::find(list.begin(), list.end(), text) != list.end(); }

// Compares the request with what the camera says of itself. Writes nothing to it.
absl::StatusOr<Shape> Check(const OpenedCamera& opened, const ScanSpec& spec, const CameraSource& s) {
  ArvCamera* camera = opened.camera.get();
  Error error;
  Shape shape;
  guint count = 0;
  const char** list = arv_camera_dup_available_pixel_formats_as_strings(camera, &count, error.out());
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
    std::copy_if(offered.begin(), offered.end(), std::back_inserter(both), [](const auto& name) { return FindPixelFormat(name) != nullptr; });
    return InvalidField("camera.pixel_format", absl::StrCat("is ", format, "; this camera and Octavo both know ", absl::StrJoin(both, ", ")));
  }

  gint lo = 0, hi = 0;
  arv_camera_get_region(camera, &shape.x, &shape.y, &shape.width, &shape.height, error.out());
  if (error.is_set()) return Broken(opened.id, "region", error);
  gint sensor_width = 0, sensor_height = 0;
  arv_camera_get_sensor_size(camera, &sensor_width, &sensor_height, error.out());
  if (error.is_set()) return Broken(opened.id, "sensor size", error);
  const int64_t samples = spec.acquisition.samples_per_record;
  if (s.width != 0 && samples != 0 && s.width != samples) {
    return InvalidField("camera.width", absl::StrCat("is ", s.width, " and acquisition.samples_per_record ", samples, "; they must be the same"));
  }
  const int64_t width = s.width != 0 ? s.width : samples != 0 ? samples : shape.width, height = s.height != 0 ? s.height : shape.height;
  arv_camera_get_width_bounds(camera, &lo, &hi, error.out());
  if (error.is_set()) return Broken(opened.id, "width", error);
  OCTAVO_RETURN_IF_ERROR(Within(s.width == 0 && samples != 0 ? "acquisition.samples_per_record" : "camera.width", width, lo,
                                std::max(hi, sensor_width), arv_camera_get_width_increment(camera, error.out())));
  arv_camera_get_height_bounds(camera, &lo, &hi, error.out());
  if (error.is_set()) return Broken(opened.id, "height", error);
  OCTAVO_RETURN_IF_ERROR(Within("camera.height", height, lo, std::max(hi, sensor_height), arv_camera_get_height_increment(camera, error.out())));
  OCTAVO_RETURN_IF_ERROR(Within("camera.offset_x", s.offset_x, 0, sensor_width - width, 1));
  OCTAVO_RETURN_IF_ERROR(Within("camera.offset_y", s.offset_y, 0, sensor_height - height, 1));
  shape.x = static_cast<int>(s.offset_x);
  shape.y = static_cast<int>(s.offset_y);
  shape.width = static_cast<int>(width);
  shape.height = static_cast<int>(height);
  if (shape.format->packed && shape.width % 2 != 0) {
    return InvalidField("camera.width",
                        absl::StrCat("is ", shape.width, "; ", shape.format->name, " packs two pixels into three bytes, so that it must be even"));
  }

  double least = 0, most = 0;
  if (s.exposure_us != 0) {
    arv_camera_get_exposure_time_bounds(camera, &least, &most, error.out());
    if (error.is_set()) return InvalidField("camera.exposure_us", absl::StrCat("is given, and the camera has none: ", error.text()));
    OCTAVO_RETURN_IF_ERROR(Within("camera.exposure_us", s.exposure_us, least, most));
  }
  if (s.gain != 0) {
    arv_camera_get_gain_bounds(camera, &least, &most, error.out());
    if (error.is_set()) return InvalidField("camera.gain", absl::StrCat("is given, and the camera has none: ", error.text()));
    OCTAVO_RETURN_IF_ERROR(Within("camera.gain", s.gain, least, most));
  }
  if (s.frame_rate_hz != 0) {
    arv_camera_get_frame_rate_bounds(camera, &least, &most, error.out());
    if (error.is_set()) return InvalidField("camera.frame_rate_hz", absl::StrCat("is given, and the camera has none: ", error.text()));
    OCTAVO_RETURN_IF_ERROR(Within("camera.frame_rate_hz", s.frame_rate_hz, least, most));
  }
  if (!s.trigger_source.empty()) {
    list = arv_camera_dup_available_trigger_sources(camera, &count, error.out());
    const auto sources = error.is_set() ? std::vector<std::string>() : Strings(list, count);
    if (!Has(sources, s.trigger_source)) {
      return InvalidField("camera.trigger_source",
                          absl::StrCat("is ", s.trigger_source, "; allowed ", sources.empty() ? "none" : absl::StrJoin(sources, ", ")));
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

// Puts the camera into the state that the request asks for, and reads back that it is there.
absl::Status Configure(const OpenedCamera& opened, const CameraSource& s, const Shape& shape) {
  ArvCamera* camera = opened.camera.get();
  Error error;
  const auto set = [&](const char* what, auto call) -> absl::Status {
    call(error.out());
    return error.is_set() ? Broken(opened.id, absl::StrCat("cannot set ", what), error) : absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(set("acquisition mode", [&](GError** e) { arv_camera_set_acquisition_mode(camera, ARV_ACQUISITION_MODE_CONTINUOUS, e); }));
  OCTAVO_RETURN_IF_ERROR(set("pixel format", [&](GError** e) { arv_camera_set_pixel_format_from_string(camera, shape.format->name, e); }));
  OCTAVO_RETURN_IF_ERROR(set("region", [&](GError** e) { arv_camera_set_region(camera, shape.x, shape.y, shape.width, shape.height, e); }));
  if (s.frame_rate_hz != 0) {
    OCTAVO_RETURN_IF_ERROR(set("frame rate", [&](GError** e) { arv_camera_set_frame_rate(camera, s.frame_rate_hz, e); }));
  }
  if (s.exposure_us != 0) {
    OCTAVO_RETURN_IF_ERROR(set("exposure", [&](GError** e) { arv_camera_set_exposure_time(camera, s.exposure_us, e); }));
  }
  if (s.gain != 0) {
    OCTAVO_RETURN_IF_ERROR(set("gain", [&](GError** e) { arv_camera_set_gain(camera, s.gain, e); }));
  }
  if (s.trigger_source.empty()) {
    OCTAVO_RETURN_IF_ERROR(set("free running", [&](GError** e) { arv_camera_clear_triggers(camera, e); }));
  } else {
    OCTAVO_RETURN_IF_ERROR(set("trigger", [&](GError** e) { arv_camera_set_trigger(camera, s.trigger_source.c_str(), e); }));
  }
  gint x = 0, y = 0, width = 0, height = 0;
  arv_camera_get_region(camera, &x, &y, &width, &height, error.out());
  if (error.is_set()) return Broken(opened.id, "region", error);
  if (width != shape.width || height != shape.height || x != shape.x || y != shape.y) {
    return InvalidField("camera.width", absl::StrCat("with the region ", shape.width, " x ", shape.height, " at ", shape.x, ", ", shape.y,
                                                     " was made ", width, " x ", height, " at ", x, ", ", y, " by the camera"));
  }
  return absl::OkStatus();
}

constexpr guint64 kPopUs = 20'000;  // between looks at the stop token

/// A camera that runs from the first Next to Close.
class CameraRecords final : public Source {
 public:
  CameraRecords(const ScanSpec& spec, CameraSource source, const Clock* clock) : spec_(spec), source_(std::move(source)), clock_(clock) {}
  ~CameraRecords() override { Close(); }

  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    return Take(static_cast<char*>(slot), max_records, stop);
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token stop) override { return Take(nullptr, records, stop); }
  bool CanWait() const override { return false; }
  void OnNews(std::function<void(const std::string&)> tell) override { news_ = std::move(tell); }
  SourceCounts Counts() override {
    MutexLock lock(mutex_);
    return counts_;
  }

  void Close() override {
    if (stream_ == nullptr) return;
    GiveBack();
    Error error;
    arv_camera_stop_acquisition(opened_.camera.get(), error.out());  // one that has gone away cannot hear it
    g_signal_handlers_disconnect_by_data(arv_camera_get_device(opened_.camera.get()), this);
    stream_ = nullptr;
    {
      MutexLock lock(library_mutex);
      opened_.camera = nullptr;
      cameras_in_use.erase(opened_.id);
    }
    MutexLock lock(mutex_);
    counts_.connected = false;
  }

 private:
  // Only now, not when the scan is submitted: until its turn comes, another scan of the queue may have the camera.
  absl::Status Open() {
    MutexLock lock(library_mutex);
    OCTAVO_ASSIGN_OR_RETURN(opened_, OpenLocked(source_.id));
    OCTAVO_ASSIGN_OR_RETURN(shape_, Check(opened_, spec_, source_));
    OCTAVO_RETURN_IF_ERROR(Configure(opened_, source_, shape_));
    if (shape_.width != spec_.acquisition.samples_per_record || shape_.format->stored != spec_.acquisition.raw_type) {
      return WithInfo(absl::FailedPreconditionError(absl::StrCat("camera ", opened_.id, " has changed since the scan was submitted: it delivers ",
                                                                 shape_.width, " samples of ", shape_.format->name)),
                      {.reason = "CAMERA_CHANGED", .field = "camera", .numbers = {}});
    }
    ArvCamera* camera = opened_.camera.get();
    Error error;
    Object<ArvStream> stream(arv_camera_create_stream(camera, nullptr, nullptr, error.out()));
    if (stream == nullptr || error.is_set()) return Broken(opened_.id, "no stream", error);
    const guint payload = arv_camera_get_payload(camera, error.out());
    if (error.is_set()) return Broken(opened_.id, "payload", error);
    for (int64_t i = 0; i < source_.buffers; ++i) arv_stream_push_buffer(stream.get(), arv_buffer_new(payload, nullptr));
    g_signal_connect(arv_camera_get_device(camera), "control-lost", G_CALLBACK(&CameraRecords::OnControlLost), this);
    arv_camera_start_acquisition(camera, error.out());
    if (error.is_set()) {
      g_signal_handlers_disconnect_by_data(arv_camera_get_device(camera), this);
      return Broken(opened_.id, "cannot be started", error);
    }
    stream_ = std::move(stream);
    cameras_in_use.insert(opened_.id);
    last_frame_at_ = std::chrono::steady_clock::now();
    Log(LogLevel::kInfo, "camera started",
        {{"camera", opened_.id}, {"format", shape_.format->name}, {"width", shape_.width}, {"height", shape_.height}});
    if (news_) news_(absl::StrCat("camera ", opened_.id, " runs: ", shape_.width, " x ", shape_.height, " ", shape_.format->name));
    MutexLock counts_lock(mutex_);
    counts_.connected = true;
    return absl::OkStatus();
  }

  // Called by Aravis' heartbeat thread.
  static void OnControlLost(ArvDevice*, CameraRecords* self) { self->control_lost_ = true; }

  // Records into `slot`, or away if it is null.
  absl::StatusOr<SourceBlock> Take(char* slot, int64_t max_records, const std::stop_token& stop) {
    if (stream_ == nullptr) {
      if (absl::Status status = Open(); !status.ok()) {
        MutexLock lock(library_mutex);
        opened_.camera = nullptr;
        return status;
      }
    }
    SourceBlock out;
    while (out.records < max_records && !stop.stop_requested()) {
      if (frame_ == nullptr) {
        OCTAVO_RETURN_IF_ERROR(Pop(out.records == 0));
        if (frame_ == nullptr) {
          if (out.records > 0) break;  // what there is, now, rather than a full block later
          continue;
        }
      }
      const int64_t first = frame_record_ + frame_used_;
      if (out.records == 0) {
        out.first_record = first;
      } else if (first != out.first_record + out.records) {
        break;  // frames were lost in between
      }
      const int64_t count = std::min<int64_t>(max_records - out.records, shape_.height - frame_used_);
      if (slot != nullptr) CopyLines(slot + out.records * RecordBytes(), count);
      frame_used_ += count;
      out.records += count;
      out.acquired = clock_->Now();
      if (frame_used_ == shape_.height) GiveBack();
    }
    MutexLock lock(mutex_);
    counts_.records += out.records;
    return out;
  }

  int64_t RecordBytes() const { return int64_t{shape_.width} * SizeOf(shape_.format->stored); }

  void CopyLines(char* to, int64_t lines) {
    size_t size = 0;
    const auto* data = static_cast<const uint8_t*>(arv_buffer_get_data(frame_, &size));
    const int64_t line_bytes = int64_t{shape_.width} * shape_.format->bits / 8;
    shape_.format->copy(data + frame_used_ * line_bytes, to, lines * shape_.width);
  }

  // The next whole frame into frame_, if one comes in a moment.
  absl::Status Pop(bool wait) {
    ArvBuffer* buffer = wait ? arv_stream_timeout_pop_buffer(stream_.get(), kPopUs) : arv_stream_try_pop_buffer(stream_.get());
    const auto now = std::chrono::steady_clock::now();
    if (buffer == nullptr) {
      if (control_lost_) {
        return WithInfo(absl::UnavailableError(absl::StrCat("camera ", opened_.id, " has gone away")),
                        {.reason = "SOURCE_LOST", .field = "camera.id", .numbers = {}});
      }
      if (wait && source_.frame_timeout_s > 0 && std::chrono::duration<double>(now - last_frame_at_).count() > source_.frame_timeout_s) {
        return WithInfo(
            absl::DeadlineExceededError(absl::StrCat("camera ", opened_.id, " has sent no whole frame for ", source_.frame_timeout_s, " s")),
            {.reason = "SOURCE_STALLED", .field = "camera.frame_timeout_s", .numbers = {}});
      }
      return absl::OkStatus();
    }
    size_t size = 0;
    arv_buffer_get_data(buffer, &size);
    const bool whole = arv_buffer_get_status(buffer) == ARV_BUFFER_STATUS_SUCCESS && arv_buffer_get_image_width(buffer) == shape_.width &&
                       arv_buffer_get_image_height(buffer) == shape_.height &&
                       size >= static_cast<size_t>(int64_t{shape_.width} * shape_.height * shape_.format->bits / 8);
    // The id of a frame whose first packets were lost says nothing.
    const std::optional<int64_t> frame = whole ? ids_.Number(arv_buffer_get_frame_id(buffer)) : std::nullopt;
    MutexLock lock(mutex_);
    if (!whole) {
      ++counts_.frames_broken;
      ++broken_since_;
    }
    if (!whole || !frame.has_value()) {  // its records are a gap before the next one
      arv_stream_push_buffer(stream_.get(), buffer);
      return absl::OkStatus();
    }
    last_frame_at_ = now;
    if (*frame > next_frame_) {
      ++counts_.gaps;
      counts_.frames_lost += std::max<int64_t>(0, *frame - next_frame_ - broken_since_);
      counts_.lost_records += (*frame - next_frame_) * shape_.height;
    }
    broken_since_ = 0;
    next_frame_ = *frame + 1;
    ++counts_.frames;
    frame_ = buffer;
    frame_record_ = *frame * shape_.height;
    frame_used_ = 0;
    return absl::OkStatus();
  }

  void GiveBack() {
    if (frame_ != nullptr) arv_stream_push_buffer(stream_.get(), std::exchange(frame_, nullptr));
  }

  const ScanSpec spec_;
  const CameraSource source_;
  const Clock* const clock_;
  std::function<void(const std::string&)> news_;
  OpenedCamera opened_;
  Shape shape_;
  Object<ArvStream> stream_;
  std::atomic<bool> control_lost_{false};
  FrameNumbers ids_;
  ArvBuffer* frame_ = nullptr;  // being copied
  int64_t frame_record_ = 0, frame_used_ = 0, next_frame_ = 0;
  int64_t broken_since_ = 0;  // broken frames since the last whole one
  std::chrono::steady_clock::time_point last_frame_at_;
  Mutex mutex_;
  SourceCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

SourceKind CameraSupport() {
  return {.name = "camera",
          .available = true,
          .reason = absl::StrCat("Aravis ", arv_get_major_version(), ".", arv_get_minor_version(), ".", arv_get_micro_version())};
}

void SetCameraInterfaces(const std::vector<std::string>& interfaces) {
  MutexLock lock(library_mutex);
  for (unsigned i = 0; i < arv_get_n_interfaces(); ++i) {
    const char* id = arv_get_interface_id(i);
    if (Has(interfaces, id)) {
      arv_enable_interface(id);
    } else {
      arv_disable_interface(id);
    }
  }
}

absl::StatusOr<std::vector<CameraInfo>> ListCameras() {
  MutexLock lock(library_mutex);
  return ListLocked();
}

absl::StatusOr<SourceTraits> InspectCamera(const ScanSpec& spec, const CameraSource& given) {
  const CameraSource s = WithDefaults(given);
  for (const auto& [field, value] :
       {std::pair{"camera.exposure_us", s.exposure_us}, std::pair{"camera.gain", s.gain}, std::pair{"camera.frame_rate_hz", s.frame_rate_hz}}) {
    if (!std::isfinite(value) || value < 0) return InvalidField(field, absl::StrCat("is ", value, "; allowed >= 0"));
  }
  if (!std::isfinite(s.frame_timeout_s) || s.frame_timeout_s > 1e9) {
    return InvalidField("camera.frame_timeout_s", absl::StrCat("is ", s.frame_timeout_s, "; allowed at most 1e9; negative = never"));
  }
  if (s.buffers < 2 || s.buffers > 1024) return InvalidField("camera.buffers", absl::StrCat("is ", given.buffers, "; allowed 0 (16), 2 to 1024"));
  if (spec.acquisition.channels > 1)
    return InvalidField("acquisition.channels", absl::StrCat("is ", spec.acquisition.channels, "; a camera's lines have 1"));
  if (spec.acquisition.packing != math::Packing::kNone)
    return InvalidField("acquisition.raw_type", "is packed; a camera's packed pixels are stored as u16");
  MutexLock lock(library_mutex);
  OCTAVO_ASSIGN_OR_RETURN(const std::string id, FindLocked(s.id));
  Shape shape;
  if (cameras_in_use.count(id) > 0) {
    // It cannot be asked while it runs for another scan; what it will do is then checked when this one's turn comes.
    const PixelFormat* format = FindPixelFormat(s.pixel_format);
    if (spec.queue.name.empty()) {
      return WithInfo(absl::FailedPreconditionError(absl::StrCat("camera ", id, " is used by another scan; put both scans into one queue")),
                      {.reason = "CAMERA_BUSY", .field = "camera.id", .numbers = {{"retryable", "true"}}});
    }
    if (format == nullptr)
      return InvalidField("camera.pixel_format", absl::StrCat("is '", s.pixel_format, "'; it must be given while another scan uses the camera"));
    if (s.width == 0) return InvalidField("camera.width", "is 0; it must be given while another scan uses the camera");
    shape = {
        .width = static_cast<int>(s.width), .height = static_cast<int>(s.height), .x = 0, .y = 0, .format = format, .frame_rate_hz = s.frame_rate_hz};
  } else {
    OCTAVO_ASSIGN_OR_RETURN(const OpenedCamera opened, OpenLocked(id));
    OCTAVO_ASSIGN_OR_RETURN(shape, Check(opened, spec, s));
  }
  if (spec.acquisition.raw_type_given && spec.acquisition.raw_type != shape.format->stored) {
    return InvalidField("acquisition.raw_type",
                        absl::StrCat("is ", Info(spec.acquisition.raw_type).name, "; ", shape.format->name, " is ", Info(shape.format->stored).name));
  }
  return SourceTraits{.samples_per_record = shape.width,
                      .raw_type = shape.format->stored,
                      .record_rate_hz = shape.frame_rate_hz * shape.height,
                      .full_scale_counts = shape.format->full_scale,
                      .total_records = 0,
                      .wavelength_nm = {}};
}

absl::StatusOr<std::unique_ptr<Source>> OpenCamera(const ScanSpec& resolved, const CameraSource& source, const Clock* clock) {
  return std::make_unique<CameraRecords>(resolved, WithDefaults(source), clock);
}

}  // namespace octavo::engine
