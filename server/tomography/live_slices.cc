#include "server/tomography/live_slices.h"

#include <algorithm>
#include <limits>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/tomography/result_volume.h"

namespace octavo::tomography {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kLeastProjections = 8;    // of a preview
constexpr int64_t kMostArrivals = 1 << 16;  // taken at once
constexpr milliseconds kPiece{30};          // of work, between two looks at what is new
constexpr milliseconds kFieldsPause{300};   // between two averages of fields that still come
constexpr milliseconds kLast{2000};         // for what is left when all frames are in

PlaneAxis AxisOf(model::FrameAxis axis) {
  switch (axis) {
    case model::FrameAxis::kX: return PlaneAxis::kX;
    case model::FrameAxis::kY: return PlaneAxis::kY;
    case model::FrameAxis::kZ: break;
  }
  return PlaneAxis::kZ;
}

}  // namespace

LiveSlices::LiveSlices(job::JobRun& run, std::stop_token stop, source::ProjectionPort& port,
                       const model::TomographySpec& spec, const TomographyLayout& planned,
                       LiveKind kind)
    : run_(run), stop_(std::move(stop)), port_(port), spec_(spec), planned_(planned), kind_(kind) {}

LiveSlices::~LiveSlices() { Release(); }

void LiveSlices::Choose(const model::IndexRange& projections) {
  Release();
  first_ = projections.begin;
  end_ = projections.end;
  all_since_.reset();
}

absl::StatusOr<bool> LiveSlices::Show(bool all) {
  if (over_) return false;
  absl::StatusOr<bool> more = Work(all);
  if (more.ok() || absl::IsCancelled(more.status()) || absl::IsUnavailable(more.status()))
    return more;
  over_ = true;
  Release();
  run_.Log(
      absl::StrCat("no planes are shown before all projections are in: ", more.status().message()));
  return false;
}

absl::StatusOr<bool> LiveSlices::Work(bool all) {
  const Clock::time_point begin = Clock::now();
  if (all && !all_since_.has_value()) all_since_ = begin;
  TakeArrivals();
  const std::vector<WantedPlane> wanted = WantedPlanes();
  OCTAVO_RETURN_IF_ERROR(EndUnwanted(wanted));
  if (wanted.empty() || !Tell()) return false;
  OCTAVO_RETURN_IF_ERROR(TakeFields(all));
  OCTAVO_RETURN_IF_ERROR(BeginWanted(wanted));
  while (Pending() && Clock::now() - begin < kPiece) {
    if (stop_.stop_requested()) return absl::CancelledError("cancelled");
    OCTAVO_RETURN_IF_ERROR(Advance());
  }
  const bool more = Pending() && (!all || Clock::now() - *all_since_ < kLast);
  OCTAVO_RETURN_IF_ERROR(Publish(all && !more));
  return more;
}

void LiveSlices::TakeArrivals() {
  for (;;) {
    const std::vector<source::ArrivedFrame> news = port_.Arrivals(arrived_, kMostArrivals);
    arrived_ += std::ssize(news);
    for (const source::ArrivedFrame& frame : news) {
      switch (frame.kind) {
        case storage::FrameKind::kProjection: projections_.push_back(frame); break;
        case storage::FrameKind::kFlat: flats_.push_back(frame); break;
        case storage::FrameKind::kDark: darks_.push_back(frame); break;
      }
    }
    if (std::ssize(news) < kMostArrivals) return;
  }
}

std::vector<LiveSlices::WantedPlane> LiveSlices::WantedPlanes() {
  std::vector<WantedPlane> planes;
  for (const publish::Wanted& wanted : run_.Wanted()) {
    if (!wanted.previews || wanted.key.product != model::Product::kBscan) continue;
    PlaneId plane{.axis = AxisOf(wanted.key.axis), .index = wanted.key.plane_index};
    const int64_t count =
        plane.axis == PlaneAxis::kZ ? planned_.slices() : planned_.image_columns();
    if (plane.index < 0) plane.index = count / 2;
    if (plane.index < count) planes.push_back({plane, wanted.key});
  }
  return planes;
}

absl::Status LiveSlices::EndUnwanted(const std::vector<WantedPlane>& wanted) {
  const auto unwanted = [&](const Shown& shown) {
    return std::none_of(wanted.begin(), wanted.end(),
                        [&](const WantedPlane& w) { return w.plane == shown.plane; });
  };
  for (const Shown& shown : shown_) {
    if (unwanted(shown)) OCTAVO_RETURN_IF_ERROR(End(shown));
  }
  std::erase_if(shown_, unwanted);
  const bool shares = std::any_of(shown_.begin(), shown_.end(),
                                  [](const Shown& shown) { return shown.feed == nullptr; });
  if (!shares) volume_.reset();
  if (shown_.empty()) Release();
  return absl::OkStatus();
}

// Planes that are shown already stay; new ones come while there is room.
absl::Status LiveSlices::BeginWanted(const std::vector<WantedPlane>& wanted) {
  for (Shown& shown : shown_) {
    std::erase_if(shown.topics, [&](const Topic& topic) {
      return std::none_of(wanted.begin(), wanted.end(),
                          [&](const WantedPlane& w) { return w.key == topic.key; });
    });
  }
  for (const auto& [plane, key] : wanted) {
    if (plane.axis != PlaneAxis::kZ && kind_ != LiveKind::kAll) {
      if (!std::exchange(told_axes_, true)) {
        run_.Log(
            "planes along y and x are shown when the volume is made: the device has no room for "
            "them beside the job");
      }
      continue;
    }
    if (Find(plane) == nullptr) {
      if (std::ssize(shown_) == MostLivePlanes(kind_)) continue;
      OCTAVO_RETURN_IF_ERROR(Begin(plane));
    }
    std::vector<Topic>& topics = Find(plane)->topics;
    if (std::none_of(topics.begin(), topics.end(),
                     [&key = key](const Topic& topic) { return topic.key == key; }))
      topics.push_back({.key = key});
  }
  return absl::OkStatus();
}

LiveSlices::Shown* LiveSlices::Find(const PlaneId& plane) {
  const auto it = std::find_if(shown_.begin(), shown_.end(),
                               [&](const Shown& shown) { return shown.plane == plane; });
  return it == shown_.end() ? nullptr : &*it;
}

// Averages the fields that have come. Planes that were made with others begin anew.
absl::Status LiveSlices::TakeFields(bool all) {
  const size_t fields = flats_.size() + darks_.size();
  if (spec_.preparation.ignore_fields || fields == averaged_) return absl::OkStatus();
  const Clock::time_point now = Clock::now();
  if (averaged_at_.has_value() && !all && now - *averaged_at_ < kFieldsPause)
    return absl::OkStatus();
  const PrepareConfig config =
      LivePrepare(planned_, LiveVolume(planned_), 1, !flats_.empty(), !darks_.empty());
  OCTAVO_ASSIGN_OR_RETURN(fields_, AverageFields(flats_, darks_, port_.spec(), config, stop_));
  averaged_ = fields;
  averaged_at_ = Clock::now();
  std::vector<Shown> before = std::move(shown_);
  shown_.clear();
  for (Shown& shown : before) shown.feed.reset();
  volume_.reset();
  for (const Shown& shown : before) OCTAVO_RETURN_IF_ERROR(Begin(shown.plane));
  return absl::OkStatus();
}

absl::Status LiveSlices::Begin(PlaneId plane) {
  Shown shown{.plane = plane, .topics = {}, .used = first_, .feed = nullptr};
  const bool slice = plane.axis == PlaneAxis::kZ;
  std::unique_ptr<LiveFeed>& feed = slice ? shown.feed : volume_;
  if (feed == nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(
        feed,
        LiveFeed::Create(run_, stop_, planned_,
                         slice ? LiveSlice(planned_, plane.index) : LiveVolume(planned_), fields_));
  }
  if (slice) plane.index = 0;  // the only one of its feed
  OCTAVO_RETURN_IF_ERROR(feed->Begin(plane));
  if (image_ == nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(image_, run_.Allocate(MostPlaneBytes(planned_, kind_)));
  }
  shown_.push_back(std::move(shown));
  return absl::OkStatus();
}

absl::Status LiveSlices::End(const Shown& shown) {
  return shown.feed != nullptr ? absl::OkStatus() : volume_->End(shown.plane);
}

void LiveSlices::Release() {
  shown_.clear();
  volume_.reset();
  if (image_ == nullptr) return;
  (void)run_.stream().Synchronize();
  run_.Free(std::exchange(image_, nullptr));
}

bool LiveSlices::Pending() const {
  return std::any_of(shown_.begin(), shown_.end(),
                     [&](const Shown& shown) { return shown.used < usable(); });
}

// The planes that have the most first, because they show the scan as it is; then those that have
// the least, which catch up.
absl::Status LiveSlices::Advance() {
  std::vector<int64_t> counts;
  for (const Shown& shown : shown_) {
    if (shown.used < usable()) counts.push_back(shown.used);
  }
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  for (const int64_t used : *least == *most ? std::vector{*most} : std::vector{*most, *least}) {
    for (Shown& shown : shown_) {
      if (shown.used == used) OCTAVO_RETURN_IF_ERROR(AddTo(shown));
    }
  }
  return absl::OkStatus();
}

// Adds a batch to the plane, and to the planes that share its feed and are as far.
absl::Status LiveSlices::AddTo(Shown& shown) {
  const int64_t used = shown.used;
  if (shown.feed != nullptr) {
    const int64_t count = std::min(shown.feed->batch(), usable() - used);
    OCTAVO_RETURN_IF_ERROR(shown.feed->Add(
        std::span(projections_).subspan(static_cast<size_t>(used), static_cast<size_t>(count)),
        {{.axis = PlaneAxis::kZ, .index = 0}}));
    shown.used += count;
    return absl::OkStatus();
  }
  // Up to where others are, so that all go on together.
  int64_t end = std::min(used + volume_->batch(), usable());
  std::vector<PlaneId> planes;
  for (const Shown& other : shown_) {
    if (other.feed != nullptr) continue;
    if (other.used == used) planes.push_back(other.plane);
    if (other.used > used) end = std::min(end, other.used);
  }
  OCTAVO_RETURN_IF_ERROR(volume_->Add(
      std::span(projections_).subspan(static_cast<size_t>(used), static_cast<size_t>(end - used)),
      planes));
  for (Shown& other : shown_) {
    if (other.feed == nullptr && other.used == used) other.used = end;
  }
  return absl::OkStatus();
}

absl::Status LiveSlices::Publish(bool last) {
  const auto news = [&](const Shown& shown) {
    const int64_t summed = shown.used - first_;
    return summed >= (last ? 1 : kLeastProjections) &&
           std::any_of(shown.topics.begin(), shown.topics.end(),
                       [&](const Topic& topic) { return topic.published != shown.used; });
  };
  if (std::none_of(shown_.begin(), shown_.end(), news) || (!last && !run_.PreviewDue()))
    return absl::OkStatus();
  for (Shown& shown : shown_) {
    if (news(shown)) OCTAVO_RETURN_IF_ERROR(PublishOne(shown));
  }
  return absl::OkStatus();
}

absl::Status LiveSlices::PublishOne(Shown& shown) {
  const model::VolumeStatus volume = DescribeResult(spec_, planned_, port_.spec().pixel_size_um);
  const int gone = shown.plane.axis == PlaneAxis::kZ   ? 0
                   : shown.plane.axis == PlaneAxis::kY ? 1
                                                       : 2,
            row = gone == 0 ? 1 : 0, column = gone == 2 ? 1 : 2;
  PlaneId plane = shown.plane;
  if (shown.feed != nullptr) plane.index = 0;
  LiveFeed& feed = shown.feed != nullptr ? *shown.feed : *volume_;
  const int64_t pixels = volume.shape[row] * volume.shape[column];
  OCTAVO_RETURN_IF_ERROR(feed.Image(plane, {static_cast<float*>(image_), pixels}));
  for (Topic& topic : shown.topics) {
    if (topic.published == shown.used) continue;
    OCTAVO_RETURN_IF_ERROR(run_.Publish(
        {.key = topic.key,
         .data = image_,
         .dtype = DType::kF32,
         .rows = volume.shape[row],
         .columns = volume.shape[column],
         .row_axis = volume.axes[row],
         .column_axis = volume.axes[column],
         .row_spacing_um = volume.spacing_um[row],
         .column_spacing_um = volume.spacing_um[column],
         .spacing_assumed = volume.spacing_assumed[row] || volume.spacing_assumed[column],
         .display_lo = 0,
         .display_hi = 0}));
    topic.published = shown.used;
  }
  return absl::OkStatus();
}

// Says once what subscribers see. Whether planes can be shown at all.
bool LiveSlices::Tell() {
  const char* const never = planned_.makes_sinograms()  ? "the job makes sinograms"
                            : planned_.stitched()       ? "stitching needs both halves of the turn"
                            : !planned_.tried().empty() ? "the job tries several axes"
                            : kind_ == LiveKind::kNone
                                ? "the device has no room for them beside the job"
                                : nullptr;
  if (std::exchange(told_, true)) return never == nullptr;
  if (never != nullptr) {
    over_ = true;
    run_.Log(absl::StrCat("no planes are shown before all projections are in: ", never));
    return false;
  }
  const model::CenterSource source = planned_.GivenSource();
  run_.Log(absl::StrCat(
      "planes are shown from the projections so far, each of which counts the same; the axis is ",
      source == model::CenterSource::kGiven ? "the given one"
      : spec_.center.find                   ? "the middle, because it is searched when all are in"
                                            : "the middle",
      LeftOut()));
  return true;
}

// The steps of the job that need other projections than the one that has come.
std::string LiveSlices::LeftOut() const {
  std::vector<std::string> left;
  const PrepareConfig& p = spec_.preparation.config;
  if (!p.rings.empty()) left.emplace_back("ring removal");
  if (p.bin_angles > 1) left.emplace_back("binning of projections");
  if (spec_.preparation.flats_in_time) left.emplace_back("flat fields in time (all are averaged)");
  if (spec_.preparation.dynamic_flats)
    left.emplace_back("the flat field of each projection (the mean stands for it)");
  if (spec_.preparation.finds_drift) left.emplace_back("shifts along the rotation axis");
  if (p.outliers.window > 0 && !spec_.preparation.ignore_fields)
    left.emplace_back("outliers of single flat and dark fields");
  if (spec_.center.along_rows == model::AlongRows::kTurn)
    left.emplace_back("the turn of an axis that leans");
  if (spec_.takes_half_turn())
    left.emplace_back("the choice of a half turn (the projections of all are used)");
  const bool of_some = spec_.projections.begin > 0 || spec_.projections.end > 0;
  if (spec_.projections.step > 1 || (of_some && !spec_.series.has_value()))
    left.emplace_back("the choice of projections (all are used)");
  if (IsIterative(spec_.reconstruction.algorithm))
    left.emplace_back("the job's algorithm (FBP stands for it)");
  return left.empty() ? "" : absl::StrCat("; left out: ", absl::StrJoin(left, ", "));
}

}  // namespace octavo::tomography
