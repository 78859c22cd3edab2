#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tbb/task_arena.h"

#include "gpu/device/buffer.h"
#include "gpu/tomography/live_planes.h"
#include "gpu/tomography/preprocess.h"
#include "server/job/job.h"
#include "server/source/push_projections.h"
#include "server/tomography/layout.h"
#include "server/tomography/live_layout.h"

namespace octavo::tomography {

/// Threads that work on pushed frames in host memory: few, as those of scans have the other cores.
inline constexpr int kLiveThreads = 4;

/// One flat and one dark field of the whole detector, f32 [rows, columns]; empty: none.
struct LiveFields {
  std::vector<float> flat, dark;
};
/// Averages each kind pixel by pixel, as the preparation says: its mean or its median.
/// `push`: what the frames are. Cancelled.
absl::StatusOr<LiveFields> AverageFields(std::span<const source::ArrivedFrame> flats,
                                         std::span<const source::ArrivedFrame> darks,
                                         const model::PushedProjectionsSpec& push,
                                         const PrepareConfig& config, const std::stop_token& stop);

/// Planes of neighbouring slices, and the way of pushed frames to them: batch by batch to the
/// device, through the preparation, into the planes. Its memory comes from the run's workspace, and
/// returns there at the end. Used by the job's thread only.
class LiveFeed {
 public:
  /// All referenced objects must outlive it.
  static absl::StatusOr<std::unique_ptr<LiveFeed>> Create(job::JobRun& run, std::stop_token stop,
                                                          const TomographyLayout& layout,
                                                          const LiveRange& range,
                                                          const LiveFields& fields);
  ~LiveFeed();

  int64_t batch() const { return range_.batch; }
  /// Begins and ends a plane of the range, whose slices count from its first one.
  absl::Status Begin(const PlaneId& plane);
  absl::Status End(const PlaneId& plane);
  /// Adds 1 to batch() projections to some of its planes, and waits. Cancelled.
  absl::Status Add(std::span<const source::ArrivedFrame> projections,
                   const std::vector<PlaneId>& planes);
  absl::Status Image(const PlaneId& plane, DeviceSpan<float> image);

 private:
  LiveFeed(job::JobRun& run, std::stop_token stop, const TomographyLayout& layout,
           const LiveRange& range)
      : run_(run),
        stop_(std::move(stop)),
        layout_(layout),
        range_(range),
        rows_(layout.RowsOf(range.first, range.slices)) {}
  absl::Status Init(const LiveFields& fields);
  absl::StatusOr<void*> Take(int64_t bytes);
  absl::Status Charge(int64_t bytes);
  absl::StatusOr<void*> Upload(const std::vector<float>& field, int64_t bytes);

  job::JobRun& run_;
  const std::stop_token stop_;
  const TomographyLayout& layout_;
  const LiveRange range_;
  const BatchRows rows_;
  std::vector<void*> taken_;
  int64_t charged_ = 0;
  tbb::task_arena copiers_{kLiveThreads};  // into staging_
  PinnedBuffer staging_;                   // [batch, rows] of frames as they were pushed
  void* raw_ = nullptr;                    // the same on the device
  void* flat_ = nullptr;
  void* dark_ = nullptr;
  DeviceSpan<float> prepared_;
  std::unique_ptr<Preparer> one_, many_;  // of one projection, and of a batch
  std::unique_ptr<LivePlanes> planes_;
};

}  // namespace octavo::tomography
