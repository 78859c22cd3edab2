// Records of a GenICam camera through Aravis. A line of an image is a record; frames are numbered
// by the camera, so that a lost one leaves a gap and never shifts what follows.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/source/camera_aravis.h"
#include "server/source/sources.h"

namespace octavo::source {
namespace {

constexpr guint64 kPopUs = 20'000;  // between checks of the stop token

/// A source whose camera runs from the first Next to Close.
class CameraRecords final : public Source {
 public:
  CameraRecords(const model::ScanSpec& spec, model::CameraSource source, const Clock* clock)
      : spec_(spec), source_(std::move(source)), clock_(clock) {}
  ~CameraRecords() override { Close(); }

  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    return Take(static_cast<char*>(slot), max_records, stop);
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token stop) override {
    return Take(nullptr, records, stop);
  }
  bool CanWait() const override { return false; }
  void OnNews(std::function<void(const std::string&)> tell) override { news_ = std::move(tell); }
  model::SourceCounts Counts() override {
    MutexLock lock(mutex_);
    return counts_;
  }

  void Close() override {
    if (stream_ == nullptr) return;
    GiveBack();
    aravis::Error error;
    arv_camera_stop_acquisition(opened_.camera.get(),
                                error.out());  // a disconnected camera does not receive it
    g_signal_handlers_disconnect_by_data(arv_camera_get_device(opened_.camera.get()), this);
    stream_ = nullptr;
    {
      MutexLock lock(aravis::library_mutex);
      opened_.camera = nullptr;
      aravis::cameras_in_use.erase(opened_.id);
    }
    MutexLock lock(mutex_);
    counts_.connected = false;
  }

 private:
  // Open the camera only now, not when the scan is submitted: until the scan's turn comes, another
  // scan of the queue may use it.
  absl::Status Open() {
    MutexLock lock(aravis::library_mutex);
    OCTAVO_ASSIGN_OR_RETURN(opened_, aravis::OpenLocked(source_.id));
    OCTAVO_ASSIGN_OR_RETURN(shape_, aravis::Check(opened_, spec_, source_));
    OCTAVO_RETURN_IF_ERROR(aravis::Configure(opened_, source_, shape_));
    if (shape_.width != spec_.acquisition.samples_per_record ||
        shape_.format->stored != spec_.acquisition.raw_type) {
      return WithInfo(
          absl::FailedPreconditionError(absl::StrCat(
              "camera ", opened_.id, " has changed since the scan was submitted: it delivers ",
              shape_.width, " samples of ", shape_.format->name)),
          {.reason = Reason::kCameraChanged, .field = "camera", .numbers = {}});
    }
    ArvCamera* camera = opened_.camera.get();
    aravis::Error error;
    aravis::Object<ArvStream> stream(
        arv_camera_create_stream(camera, nullptr, nullptr, error.out()));
    if (stream == nullptr || error.is_set()) return aravis::Broken(opened_.id, "no stream", error);
    const guint payload = arv_camera_get_payload(camera, error.out());
    if (error.is_set()) return aravis::Broken(opened_.id, "payload", error);
    for (int64_t i = 0; i < source_.buffers; ++i)
      arv_stream_push_buffer(stream.get(), arv_buffer_new(payload, nullptr));
    g_signal_connect(arv_camera_get_device(camera), "control-lost",
                     G_CALLBACK(&CameraRecords::OnControlLost), this);
    arv_camera_start_acquisition(camera, error.out());
    if (error.is_set()) {
      g_signal_handlers_disconnect_by_data(arv_camera_get_device(camera), this);
      return aravis::Broken(opened_.id, "cannot be started", error);
    }
    stream_ = std::move(stream);
    aravis::cameras_in_use.insert(opened_.id);
    last_frame_at_ = std::chrono::steady_clock::now();
    Log(LogLevel::kInfo, "camera started",
        {{"camera", opened_.id},
         {"format", shape_.format->name},
         {"width", shape_.width},
         {"height", shape_.height}});
    if (news_)
      news_(absl::StrCat("camera ", opened_.id, " runs: ", shape_.width, " x ", shape_.height, " ",
                         shape_.format->name));
    MutexLock counts_lock(mutex_);
    counts_.connected = true;
    return absl::OkStatus();
  }

  // Called by Aravis' heartbeat thread.
  static void OnControlLost(ArvDevice*, CameraRecords* self) { self->control_lost_ = true; }

  // Copies records into `slot`, or drops them if it is null.
  absl::StatusOr<SourceBlock> Take(char* slot, int64_t max_records, const std::stop_token& stop) {
    if (stream_ == nullptr) {
      if (absl::Status status = Open(); !status.ok()) {
        MutexLock lock(aravis::library_mutex);
        opened_.camera = nullptr;
        return status;
      }
    }
    SourceBlock out;
    while (out.records < max_records && !stop.stop_requested()) {
      if (frame_ == nullptr) {
        OCTAVO_RETURN_IF_ERROR(Pop(out.records == 0));
        if (frame_ == nullptr) {
          if (out.records > 0) break;  // deliver a partial block now rather than a full one later
          continue;
        }
      }
      const int64_t first = frame_record_ + frame_used_;
      if (out.records == 0) {
        out.first_record = first;
      } else if (first != out.first_record + out.records) {
        break;  // frames in between were lost
      }
      const int64_t count =
          std::min<int64_t>(max_records - out.records, shape_.height - frame_used_);
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

  // Moves the next complete frame into frame_, if one comes within a moment.
  absl::Status Pop(bool wait) {
    ArvBuffer* buffer = wait ? arv_stream_timeout_pop_buffer(stream_.get(), kPopUs)
                             : arv_stream_try_pop_buffer(stream_.get());
    const auto now = std::chrono::steady_clock::now();
    if (buffer == nullptr) {
      if (control_lost_) {
        return WithInfo(
            absl::UnavailableError(absl::StrCat("camera ", opened_.id, " has gone away")),
            {.reason = Reason::kSourceLost, .field = "camera.id", .numbers = {}});
      }
      if (wait && source_.frame_timeout_s > 0 &&
          std::chrono::duration<double>(now - last_frame_at_).count() > source_.frame_timeout_s) {
        return WithInfo(
            absl::DeadlineExceededError(absl::StrCat("camera ", opened_.id,
                                                     " has sent no whole frame for ",
                                                     source_.frame_timeout_s, " s")),
            {.reason = Reason::kSourceStalled, .field = "camera.frame_timeout", .numbers = {}});
      }
      return absl::OkStatus();
    }
    size_t size = 0;
    arv_buffer_get_data(buffer, &size);
    const bool whole = arv_buffer_get_status(buffer) == ARV_BUFFER_STATUS_SUCCESS &&
                       arv_buffer_get_image_width(buffer) == shape_.width &&
                       arv_buffer_get_image_height(buffer) == shape_.height &&
                       size >= static_cast<size_t>(int64_t{shape_.width} * shape_.height *
                                                   shape_.format->bits / 8);
    // The id of a frame whose first packets were lost is invalid.
    const std::optional<int64_t> frame =
        whole ? ids_.Number(arv_buffer_get_frame_id(buffer)) : std::nullopt;
    MutexLock lock(mutex_);
    if (!whole) {
      ++counts_.frames_broken;
      ++broken_since_;
    }
    if (!whole || !frame.has_value()) {  // its records become a gap before the next frame
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

  const model::ScanSpec spec_;
  const model::CameraSource source_;
  const Clock* const clock_;
  std::function<void(const std::string&)> news_;
  aravis::OpenedCamera opened_;
  aravis::Shape shape_;
  aravis::Object<ArvStream> stream_;
  std::atomic<bool> control_lost_{false};
  FrameNumbers ids_;
  ArvBuffer* frame_ = nullptr;  // the frame being copied
  int64_t frame_record_ = 0, frame_used_ = 0, next_frame_ = 0;
  int64_t broken_since_ = 0;  // broken frames since the last whole one
  std::chrono::steady_clock::time_point last_frame_at_;
  Mutex mutex_;
  model::SourceCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> OpenCamera(const model::ScanSpec& resolved,
                                                   const model::CameraSource& source,
                                                   const Clock* clock) {
  return std::make_unique<CameraRecords>(resolved, WithDefaults(source), clock);
}

}  // namespace octavo::source
