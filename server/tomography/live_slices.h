#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/tomography/live_planes.h"
#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/publish/topic.h"
#include "server/source/push_projections.h"
#include "server/tomography/layout.h"
#include "server/tomography/live_feed.h"

namespace octavo::tomography {

/// Shows subscribers planes of the object while its projections are still pushed: every projection
/// is prepared and added to the planes that are wanted as it comes (gpu/tomography/live_planes.h).
/// Small pieces of work beside the job that has the device. Used by the job's thread only.
class LiveSlices {
 public:
  /// All must outlive it. `planned`: the layout of all frames. `kind`: what there is room for.
  LiveSlices(job::JobRun& run, std::stop_token stop, source::ProjectionPort& port,
             const model::TomographySpec& spec, const TomographyLayout& planned, LiveKind kind);
  ~LiveSlices();

  /// Begins anew with some of the projections, counted in the order of their arrival; those that
  /// have come are caught up with. The default: all of them.
  void Choose(const model::IndexRange& projections);
  /// Frees the memory; Show takes it again.
  void Release();
  /// Does a piece of work, some hundredths of a second, and shows what is due. `all`: no more
  /// frames will come; then it shows the planes as soon as all frames are in them, and after two
  /// seconds as they are. Returns whether it has more to do at once. Cancelled; Unavailable. After
  /// any other error, which the job's log tells, it shows nothing more.
  absl::StatusOr<bool> Show(bool all);

 private:
  using Clock = std::chrono::steady_clock;
  struct Topic {
    publish::TopicKey key;
    int64_t published = 0;  // projections in its last image
  };
  struct Shown {
    PlaneId plane;
    std::vector<Topic> topics;       // that name it
    int64_t used = 0;                // projections, in the order of their arrival
    std::unique_ptr<LiveFeed> feed;  // of a plane along z; the others share volume_
  };

  absl::StatusOr<bool> Work(bool all);
  void TakeArrivals();
  struct WantedPlane {
    PlaneId plane;
    publish::TopicKey key;
  };
  std::vector<WantedPlane> WantedPlanes();
  absl::Status EndUnwanted(const std::vector<WantedPlane>& wanted);
  absl::Status BeginWanted(const std::vector<WantedPlane>& wanted);
  absl::Status TakeFields(bool all);
  absl::Status Begin(PlaneId plane);
  Shown* Find(const PlaneId& plane);
  absl::Status End(const Shown& shown);
  bool Pending() const;
  int64_t usable() const { return std::min(std::ssize(projections_), end_); }
  absl::Status Advance();
  absl::Status AddTo(Shown& shown);
  absl::Status Publish(bool last);
  /// Writes the plane's image and publishes it to the topics that have another.
  absl::Status PublishOne(Shown& shown);
  bool Tell();
  std::string LeftOut() const;

  job::JobRun& run_;
  const std::stop_token stop_;
  source::ProjectionPort& port_;
  const model::TomographySpec& spec_;
  const TomographyLayout& planned_;
  const LiveKind kind_;
  int64_t first_ = 0, end_ = std::numeric_limits<int64_t>::max();  // of the projections used
  int64_t arrived_ = 0;  // frames of the port that were taken
  std::vector<source::ArrivedFrame> projections_, flats_, darks_;
  LiveFields fields_;
  size_t averaged_ = 0;  // flat and dark fields in fields_
  std::optional<Clock::time_point> averaged_at_, all_since_;
  std::vector<Shown> shown_;
  std::unique_ptr<LiveFeed> volume_;
  void* image_ = nullptr;
  bool told_ = false, told_axes_ = false, over_ = false;
};

}  // namespace octavo::tomography
