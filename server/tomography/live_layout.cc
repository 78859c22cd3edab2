#include "server/tomography/live_layout.h"

#include <algorithm>

#include "gpu/base/status.h"

namespace octavo::tomography {
namespace {

// More projections at once use a device better, but a subscriber sees them later.
constexpr int64_t kVolumeBytes = int64_t{64} << 20, kMostVolumeBatch = 16;
constexpr int64_t kSliceBytes = int64_t{16} << 20, kMostSliceBatch = 64;

int64_t FrameBytes(const TomographyLayout& layout, int64_t rows) {
  return rows * layout.columns() * static_cast<int64_t>(sizeof(float));
}

/// The slice that needs the most rows.
int64_t WidestSlice(const TomographyLayout& layout) {
  int64_t widest = 0;
  for (int64_t slice = 1; slice < layout.slices(); ++slice) {
    if (layout.RowsOf(slice, 1).count > layout.RowsOf(widest, 1).count) widest = slice;
  }
  return widest;
}

}  // namespace

int64_t MostLivePlanes(LiveKind kind) {
  switch (kind) {
    case LiveKind::kNone: return 0;
    case LiveKind::kOneSlice: return 1;
    case LiveKind::kSlices:
    case LiveKind::kAll: break;
  }
  return kMostLivePlanes;
}

LiveRange LiveVolume(const TomographyLayout& layout) {
  const int64_t rows = layout.RowsOf(0, layout.slices()).count;
  return {
      .first = 0,
      .slices = layout.slices(),
      .batch = std::clamp<int64_t>(kVolumeBytes / FrameBytes(layout, rows), 1, kMostVolumeBatch)};
}

LiveRange LiveSlice(const TomographyLayout& layout, int64_t slice) {
  const int64_t rows = layout.RowsOf(slice, 1).count;
  return {.first = slice,
          .slices = 1,
          .batch = std::clamp<int64_t>(kSliceBytes / FrameBytes(layout, rows), 1, kMostSliceBatch)};
}

PrepareConfig LivePrepare(const TomographyLayout& layout, const LiveRange& range, int64_t angles,
                          bool flat, bool dark) {
  PrepareConfig config =
      layout.PrepareFor(layout.RowsOf(range.first, range.slices), /*for_overlap=*/true);
  config.angles = angles;
  config.bin_angles = 1;
  config.field_dtype = DType::kF32;
  config.field_packing = math::Packing::kNone;
  config.flats = flat ? 1 : 0;
  config.darks = dark ? 1 : 0;
  config.flat_components = {};
  config.shifts = {};
  config.flat_series.clear();
  config.flat_times.clear();
  config.angle_times.clear();
  return config;
}

LivePlanesConfig LivePlanesOf(const TomographyLayout& layout, const LiveRange& range) {
  return {
      .back_projection = layout.BackProjectionFor(range.first, range.slices, layout.GivenCenters()),
      .slices = range.slices,
      .batch = range.batch};
}

absl::StatusOr<LiveFeedBytes> BytesOfFeed(const TomographyLayout& layout, const LiveRange& range,
                                          Device& device) {
  const BatchRows rows = layout.RowsOf(range.first, range.slices);
  LiveFeedBytes bytes;
  bytes.raw = range.batch * rows.count * layout.raw_row_bytes();
  bytes.field = FrameBytes(layout, rows.count);
  for (const int64_t angles : {int64_t{1}, range.batch}) {
    const PrepareConfig config = LivePrepare(layout, range, angles, true, true);
    OCTAVO_ASSIGN_OR_RETURN(const PreparedShape shape, CheckPrepare(config));
    OCTAVO_ASSIGN_OR_RETURN(const int64_t prepare, Preparer::DeviceBytes(config, device));
    bytes.others += prepare;
    bytes.prepared = shape.elements() * static_cast<int64_t>(sizeof(float));
  }
  OCTAVO_ASSIGN_OR_RETURN(const int64_t planes,
                          LivePlanes::DeviceBytes(LivePlanesOf(layout, range), device));
  bytes.others += planes;
  return bytes;
}

int64_t MostPlaneBytes(const TomographyLayout& layout, LiveKind kind) {
  const int64_t columns = layout.image_columns(),
                rows = kind == LiveKind::kAll ? std::max(layout.image_rows(), layout.slices())
                                              : layout.image_rows();
  return rows * columns * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<int64_t> LiveBytes(const TomographyLayout& layout, LiveKind kind, Device& device) {
  if (kind == LiveKind::kNone) return 0;
  OCTAVO_ASSIGN_OR_RETURN(const LiveFeedBytes slice,
                          BytesOfFeed(layout, LiveSlice(layout, WidestSlice(layout)), device));
  int64_t bytes = MostLivePlanes(kind) * slice.all();
  if (kind == LiveKind::kAll) {
    OCTAVO_ASSIGN_OR_RETURN(const LiveFeedBytes volume,
                            BytesOfFeed(layout, LiveVolume(layout), device));
    bytes += volume.all();
  }
  return bytes + (MostLivePlanes(kind) + 1) * MostPlaneBytes(layout, kind);
}

}  // namespace octavo::tomography
