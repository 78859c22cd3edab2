#include "gpu/tomography/projection_matrix.h"

namespace octavo::inline gpu {

RayLayout LayOutRays(const TomographyConfig& c, const TomographyGrid& grid,
                     const TomographyOps& ops) {
  RayLayout layout;
  layout.lanes = ops.Lanes(c.slices, grid.shared_center);
  layout.groups = (c.slices + layout.lanes - 1) / layout.lanes;
  const auto angles = static_cast<int64_t>(c.angles_rad.size());
  layout.one_image = grid.grid_size * (grid.grid_size + 2 * math::kRayMargin);
  layout.one_sinogram = angles * (c.detectors + 2 * math::kRayMargin);
  // A few bytes per angle and group, padded to 256 bytes.
  layout.table_bytes = angles * static_cast<int64_t>(sizeof(math::ForwardAngle) +
                                                     sizeof(math::BackAngle) + sizeof(int32_t)) +
                       layout.groups * static_cast<int64_t>(sizeof(float)) + 4 * 256;
  return layout;
}

ProjectionMatrix::ProjectionMatrix(const TomographyConfig& config, const TomographyPlan& plan,
                                   Device& device, TomographyOps& ops)
    : config_(config),
      plan_(plan),
      device_(device),
      ops_(ops),
      layout_(LayOutRays(config, plan, ops)) {}

absl::Status ProjectionMatrix::Init(StreamRef stream) {
  OCTAVO_RETURN_IF_ERROR(Upload(stream, plan_.forward, forward_));
  OCTAVO_RETURN_IF_ERROR(Upload(stream, plan_.back, back_));
  OCTAVO_RETURN_IF_ERROR(Upload(stream, plan_.order, order_));
  std::vector<float> centers(static_cast<size_t>(layout_.groups), plan_.centers[0]);
  if (!plan_.shared_center) centers = plan_.centers;
  OCTAVO_RETURN_IF_ERROR(Upload(stream, centers, centers_));
  view_ = {.groups = layout_.groups,
           .lanes = layout_.lanes,
           .size = plan_.grid_size,
           .detectors = config_.detectors,
           .angles = static_cast<int64_t>(plan_.order.size()),
           .forward = forward_.as<math::ForwardAngle>(),
           .back = back_.as<math::BackAngle>(),
           .centers = centers_.as<float>(),
           .pixel_size = static_cast<float>(config_.pixel_size),
           .radius = plan_.radius,
           .interpolation = config_.interpolation};
  return absl::OkStatus();
}

void ProjectionMatrix::BeginRun(int64_t slices) {
  samples_ = 0;
  view_.groups = (slices + layout_.lanes - 1) / layout_.lanes;
}

absl::Status ProjectionMatrix::Forward(StreamRef stream, const CancelCheck& goes_on,
                                       const AngleRange& range, DeviceSpan<const float> image,
                                       DeviceSpan<const float> transposed,
                                       DeviceSpan<float> sinogram) {
  constexpr int64_t kAngles = 8;  // angles that the kernels process together
  const int64_t samples = view_.groups * view_.lanes * view_.size * view_.detectors;
  return InPieces(stream, goes_on, {range.begin, range.end}, kAngles, samples,
                  [&](int64_t begin, int64_t end) {
                    const AngleRange part{
                        .begin = begin, .split = std::clamp(range.split, begin, end), .end = end};
                    return ops_.Forward(stream, view_, part, image, transposed, sinogram);
                  });
}

absl::Status ProjectionMatrix::Back(StreamRef stream, const CancelCheck& goes_on,
                                    const AngleRange& range, DeviceSpan<const float> sinogram,
                                    DeviceSpan<float> image) {
  const int64_t samples = view_.groups * view_.lanes * view_.size * range.count();
  return InPieces(stream, goes_on, {0, view_.size}, kBackRows, samples,
                  [&](int64_t begin, int64_t end) {
                    RayView rows = view_;
                    rows.row_begin = begin;
                    rows.row_end = end;
                    return ops_.Back(stream, rows, range, sinogram, image);
                  });
}

}  // namespace octavo::inline gpu
