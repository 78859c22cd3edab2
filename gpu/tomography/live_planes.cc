#include "gpu/tomography/live_planes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/buffer.h"
#include "gpu/tomography/reconstruct_kernels.h"
#include "gpu/tomography/reconstruct_plan.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kFloat = sizeof(float), kMostSlices = 65535, kMostBatch = 4096;

/// The FBP of one slice; its centres are checked one by one.
TomographyConfig OneSlice(const LivePlanesConfig& c, double center) {
  TomographyConfig one = c.back_projection;
  one.algorithm = TomographyAlgorithm::kFbp;
  one.angles_rad = {0};
  one.slices = 1;
  one.centers = {center};
  one.padding_centers.clear();
  return one;
}

std::vector<double> CentersOf(const LivePlanesConfig& c) {
  if (!c.back_projection.centers.empty()) return c.back_projection.centers;
  return {0.5 * static_cast<double>(c.back_projection.detectors - 1)};
}

absl::Status Check(const LivePlanesConfig& c) {
  if (c.slices < 1 || c.slices > kMostSlices)
    return FieldOutOfRange("slices", c.slices, 1, kMostSlices);
  if (c.batch < 1 || c.batch > kMostBatch) return FieldOutOfRange("batch", c.batch, 1, kMostBatch);
  if (c.back_projection.form == TomographyForm::kTomopy)
    return InvalidField("form",
                        "is that of TomoPy, which has no FBP; allowed is the corrected one");
  const std::vector<double> centers = CentersOf(c);
  if (centers.size() > 1 && std::ssize(centers) != c.slices) {
    return InvalidField(
        "centers",
        absl::StrCat("has ", centers.size(), " values; allowed are none, one, or one per slice (",
                     c.slices, ")"));
  }
  for (const double center : centers) OCTAVO_RETURN_IF_ERROR(CheckTomography(OneSlice(c, center)));
  return absl::OkStatus();
}

class GrowingPlanes final : public LivePlanes {
 public:
  GrowingPlanes(const LivePlanesConfig& config, Device& device, TomographyOps& ops)
      : config_(config),
        device_(device),
        ops_(ops),
        plan_(PlanTomography(OneSlice(config, CentersOf(config)[0]))) {}

  /// Allocates the memory, or only counts it.
  absl::Status Init(bool only_count) {
    only_count_ = only_count;
    const TomographyConfig& c = config_.back_projection;
    view_ = {.groups = config_.slices,
             .lanes = 1,
             .size = plan_.image_size,
             .detectors = c.detectors,
             .angles = config_.batch,
             .pixel_size = static_cast<float>(c.pixel_size),
             .radius = plan_.radius,
             .interpolation = c.interpolation};
    // Margins are zero and stay zero, because the operators write only between them, and every row
    // lies at the same places whatever the number of angles.
    for (DeviceBuffer* const rows : {&packed_, &filtered_})
      OCTAVO_RETURN_IF_ERROR(Take(view_.sinogram_elements() * kFloat, *rows));
    OCTAVO_RETURN_IF_ERROR(Take(config_.batch * kBackAngle, back_));
    OCTAVO_RETURN_IF_ERROR(Take(config_.batch * static_cast<int64_t>(sizeof(int32_t)), order_));
    OCTAVO_RETURN_IF_ERROR(Take(config_.slices * kFloat, centers_));
    OCTAVO_RETURN_IF_ERROR(Take(2 * kFloat, factors_));
    OCTAVO_RETURN_IF_ERROR(Take((2 * c.detectors - 1) * kFloat, taps_));
    if (c.extend_edges) {
      OCTAVO_RETURN_IF_ERROR(Take(c.detectors * kFloat, edge_left_));
      OCTAVO_RETURN_IF_ERROR(Take(c.detectors * kFloat, edge_right_));
    }
    return only_count ? absl::OkStatus() : Upload();
  }
  int64_t bytes() const { return bytes_; }

  int64_t rows(PlaneAxis axis) const override { return Plane({.axis = axis}).rows(); }
  int64_t columns(PlaneAxis axis) const override { return Plane({.axis = axis}).columns(); }
  int64_t PixelsOf(PlaneAxis axis) const { return rows(axis) * columns(axis); }

  absl::Status Begin(StreamRef stream, const PlaneId& plane) override {
    const int64_t planes = plane.axis == PlaneAxis::kZ ? config_.slices : plan_.image_size;
    if (plane.index < 0 || plane.index >= planes)
      return FieldOutOfRange("plane", plane.index, 0, planes - 1);
    Growing* growing = Find(plane);
    if (growing == nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer sums, device_.Allocate(PixelsOf(plane.axis) * kFloat));
      growing = &growing_.emplace_back(Growing{.plane = plane, .sums = std::move(sums)});
    }
    growing->count = 0;
    return device_.Fill(stream, growing->sums.data(), growing->sums.bytes(), 0);
  }

  absl::Status End(StreamRef stream, const PlaneId& plane) override {
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    std::erase_if(growing_, [&](const Growing& growing) { return growing.plane == plane; });
    return absl::OkStatus();
  }

  int64_t count(const PlaneId& plane) const override {
    const auto it = std::find_if(growing_.begin(), growing_.end(),
                                 [&](const Growing& growing) { return growing.plane == plane; });
    return it == growing_.end() ? -1 : it->count;
  }

  absl::Status Add(StreamRef stream, const LiveProjections& in,
                   const std::vector<PlaneId>& planes) override {
    const auto angles = std::ssize(in.angles_rad);
    if (angles < 1 || angles > config_.batch)
      return FieldOutOfRange("angles_rad", angles, 1, config_.batch);
    const int64_t detectors = config_.back_projection.detectors;
    if (in.room < angles || in.data.count() < config_.slices * in.room * detectors) {
      return InvalidField("data", absl::StrCat("has ", in.data.count(), " values in ", in.room,
                                               " angles; allowed are those of ", config_.slices,
                                               " slices, at least ", angles, " angles and ",
                                               detectors, " detectors"));
    }
    for (size_t a = 0; a < in.angles_rad.size(); ++a) {
      if (!std::isfinite(in.angles_rad[a]))
        return FieldNotAllowed("angles_rad", in.angles_rad[a], "finite values");
      host_back_.as<math::BackAngle>()[a] =
          BackAngleOf(config_.back_projection, in.angles_rad[a], 1);
    }
    std::vector<Growing*> all;
    for (const PlaneId& plane : planes) {
      all.push_back(Find(plane));
      if (all.back() == nullptr)
        return InvalidField("planes", absl::StrCat("has plane ", plane.index,
                                                   ", which was not begun; allowed are those that "
                                                   "were"));
    }
    const absl::Status added = Enqueue(stream, in, all);
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    OCTAVO_RETURN_IF_ERROR(added);
    for (Growing* const growing : all) growing->count += angles;
    return absl::OkStatus();
  }

  absl::Status Image(StreamRef stream, const PlaneId& plane, DeviceSpan<float> image) override {
    Growing* const growing = Find(plane);
    if (growing == nullptr)
      return InvalidField("plane", absl::StrCat("is ", plane.index, ", which was not begun"));
    const int64_t pixels = PixelsOf(plane.axis);
    if (image.count() < pixels)
      return InvalidField("image", absl::StrCat("has ", image.count(), " pixels; allowed are ",
                                                pixels, " or more"));
    OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, image.data(), pixels * kFloat, 0));
    if (growing->count == 0) return absl::OkStatus();
    // The caller may ask for several images before the stream has made the first.
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    auto* const factors = host_factors_.as<float>();
    factors[0] = static_cast<float>(std::numbers::pi / static_cast<double>(growing->count));
    factors[1] = 0;
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(stream, factors_.data(), factors, 2 * kFloat));
    RayView one = view_;
    one.groups = 1;
    const DeviceSpan<float> scale = factors_.span<float>();
    return ops_.ScaledAdd(stream, one, scale, growing->sums.span<float>(), scale.From(1), image,
                          pixels);
  }

 private:
  struct Growing {
    PlaneId plane;
    DeviceBuffer sums;
    int64_t count = 0;
  };
  static constexpr int64_t kBackAngle = sizeof(math::BackAngle);

  Growing* Find(const PlaneId& plane) {
    const auto it = std::find_if(growing_.begin(), growing_.end(),
                                 [&](const Growing& growing) { return growing.plane == plane; });
    return it == growing_.end() ? nullptr : &*it;
  }
  math::VolumePlane Plane(const PlaneId& plane) const {
    return {.axis = plane.axis,
            .index = static_cast<int32_t>(plane.index),
            .size = static_cast<int32_t>(plan_.image_size),
            .slices = static_cast<int32_t>(config_.slices)};
  }

  absl::Status Take(int64_t bytes, DeviceBuffer& buffer) {
    bytes = std::max<int64_t>(bytes, 256);
    bytes_ += bytes;
    if (only_count_) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(buffer, device_.Allocate(bytes));
    return absl::OkStatus();
  }

  absl::Status Upload() {
    OCTAVO_ASSIGN_OR_RETURN(host_back_, device_.AllocatePinned(config_.batch * kBackAngle));
    OCTAVO_ASSIGN_OR_RETURN(host_factors_, device_.AllocatePinned(2 * kFloat));
    OCTAVO_ASSIGN_OR_RETURN(const Stream stream, device_.NewStream(StreamPriority::kNormal));
    for (DeviceBuffer* const rows : {&packed_, &filtered_})
      OCTAVO_RETURN_IF_ERROR(device_.Fill(stream.ref(), rows->data(), rows->bytes(), 0));
    std::vector<int32_t> order;
    for (int64_t a = 0; a < config_.batch; ++a) order.push_back(static_cast<int32_t>(a));
    const std::vector<double> given = CentersOf(config_);
    std::vector<float> centers(static_cast<size_t>(config_.slices), static_cast<float>(given[0]));
    if (given.size() > 1) std::copy(given.begin(), given.end(), centers.begin());
    const ProjectionFilterTaps filter = DesignProjectionFilter(config_.back_projection);
    OCTAVO_RETURN_IF_ERROR(device_.Upload(stream.ref(), order_.span<int32_t>(), order));
    OCTAVO_RETURN_IF_ERROR(device_.Upload(stream.ref(), centers_.span<float>(), centers));
    OCTAVO_RETURN_IF_ERROR(device_.Upload(stream.ref(), taps_.span<float>(), filter.taps));
    if (config_.back_projection.extend_edges) {
      OCTAVO_RETURN_IF_ERROR(
          device_.Upload(stream.ref(), edge_left_.span<float>(), filter.edge_left));
      OCTAVO_RETURN_IF_ERROR(
          device_.Upload(stream.ref(), edge_right_.span<float>(), filter.edge_right));
    }
    view_.back = back_.as<math::BackAngle>();
    view_.centers = centers_.as<float>();
    return stream.ref().Synchronize();
  }

  absl::Status Enqueue(StreamRef stream, const LiveProjections& in,
                       const std::vector<Growing*>& planes) {
    RayView view = view_;
    view.angles = std::ssize(in.angles_rad);
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToDevice(stream, back_.data(), host_back_.data(), view.angles * kBackAngle));
    const bool all = std::any_of(planes.begin(), planes.end(), [](const Growing* growing) {
      return growing->plane.axis != PlaneAxis::kZ;
    });
    if (all) OCTAVO_RETURN_IF_ERROR(Filter(stream, view, in, 0, config_.slices));
    for (Growing* const growing : planes) {
      if (!all) OCTAVO_RETURN_IF_ERROR(Filter(stream, view, in, growing->plane.index, 1));
      OCTAVO_RETURN_IF_ERROR(ops_.AddPlane(stream, view, Plane(growing->plane),
                                           filtered_.span<float>(), growing->sums.span<float>()));
    }
    return absl::OkStatus();
  }

  // The rows of some slices, to their places among those of all slices.
  absl::Status Filter(StreamRef stream, const RayView& view, const LiveProjections& in,
                      int64_t first, int64_t count) {
    const int64_t slice = in.room * view.detectors,
                  place = first * view.angles * view.sinogram_pitch();
    RayView rows = view;
    rows.groups = count;
    const SinogramView from{.data = in.data.data() + first * slice,
                            .slice_stride = slice,
                            .angle_stride = view.detectors};
    OCTAVO_RETURN_IF_ERROR(ops_.PackSinograms(stream, rows, from, order_.span<int32_t>(), count,
                                              packed_.span<float>().From(place)));
    // To the filter, rows of different slices are alike.
    rows.angles *= rows.groups;
    rows.groups = 1;
    const RowFilter filter{.taps = taps_.as<float>(),
                           .edge_left = edge_left_.as<float>(),
                           .edge_right = edge_right_.as<float>()};
    return ops_.FilterRows(stream, rows, filter, packed_.span<float>().From(place),
                           filtered_.span<float>().From(place));
  }

  const LivePlanesConfig config_;
  Device& device_;
  TomographyOps& ops_;
  const TomographyPlan plan_;
  RayView view_;
  bool only_count_ = false;
  int64_t bytes_ = 0;
  DeviceBuffer packed_, filtered_, back_, order_, centers_, factors_, taps_, edge_left_,
      edge_right_;
  PinnedBuffer host_back_, host_factors_;
  std::vector<Growing> growing_;
};

}  // namespace

absl::StatusOr<int64_t> LivePlanes::DeviceBytes(const LivePlanesConfig& config, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(config));
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const ops, FindOperators<TomographyOps>(device));
  GrowingPlanes planes(config, device, *ops);
  OCTAVO_RETURN_IF_ERROR(planes.Init(true));
  return planes.bytes();
}

absl::StatusOr<int64_t> LivePlanes::PlaneBytes(const LivePlanesConfig& config, PlaneAxis axis) {
  OCTAVO_RETURN_IF_ERROR(Check(config));
  const int64_t size = PlanTomography(OneSlice(config, CentersOf(config)[0])).image_size;
  return (axis == PlaneAxis::kZ ? size : config.slices) * size * kFloat;
}

absl::StatusOr<std::unique_ptr<LivePlanes>> LivePlanes::Create(const LivePlanesConfig& config,
                                                               Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(config));
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const ops, FindOperators<TomographyOps>(device));
  auto planes = std::make_unique<GrowingPlanes>(config, device, *ops);
  OCTAVO_RETURN_IF_ERROR(planes->Init(false));
  return planes;
}

}  // namespace octavo::inline gpu
