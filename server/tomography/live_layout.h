#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/tomography/live_planes.h"
#include "server/tomography/layout.h"

// The layout of the planes that a job shows while its projections still come: what is prepared for
// them, and how much memory they take.
namespace octavo::tomography {

/// The most planes that a job shows at a time while projections come.
constexpr int64_t kMostLivePlanes = 8;
int64_t MostLivePlanes(LiveKind kind);

/// Neighbouring slices whose planes are fed together, and the projections of a batch.
struct LiveRange {
  int64_t first = 0, slices = 0, batch = 1;
};
/// Of planes along y and x, which cross all slices, and of the plane z = slice.
LiveRange LiveVolume(const TomographyLayout& layout);
LiveRange LiveSlice(const TomographyLayout& layout, int64_t slice);

/// The preparation of `angles` projections, each by itself: without rings, binning of projections,
/// and flat fields in time, which need others. Its fields are one flat and one dark field of f32,
/// where there are any.
PrepareConfig LivePrepare(const TomographyLayout& layout, const LiveRange& range, int64_t angles,
                          bool flat, bool dark);
/// The planes of these slices, with the axis that is given, or in the middle.
LivePlanesConfig LivePlanesOf(const TomographyLayout& layout, const LiveRange& range);

/// Device memory of a LiveFeed of the range, without its planes: all of it, and the part that its
/// preparers and its LivePlanes allocate.
struct LiveFeedBytes {
  int64_t raw = 0, field = 0, prepared = 0, others = 0;
  int64_t all() const { return raw + 2 * field + prepared + others; }
};
absl::StatusOr<LiveFeedBytes> BytesOfFeed(const TomographyLayout& layout, const LiveRange& range,
                                          Device& device);
/// Of the largest plane that `kind` shows.
int64_t MostPlaneBytes(const TomographyLayout& layout, LiveKind kind);
/// The most device memory that a LiveSlices takes.
absl::StatusOr<int64_t> LiveBytes(const TomographyLayout& layout, LiveKind kind, Device& device);

}  // namespace octavo::tomography
