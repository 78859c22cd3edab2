#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/tomography/preprocess.h"

// How far the image of the object moved along the rotation axis from projection to projection: a
// stage that sinks, or a detector that settles.
namespace octavo::inline gpu {

/// The shifts of projections along the rows of the detector.
struct RowDrift {
  /// Of each projection, in rows, less their mean or from the reference: row r of the object lies
  /// at r + shift.
  std::vector<double> shifts;
  double uncertainty = 0;  // standard deviation of a shift, in rows, in the median; infinite: none
  /// The part of the variance of a profile that the mean of all profiles explains at its shift, in
  /// the median; 1 = the mass of every row is the same in all projections.
  double agreement = 0;
  std::vector<double> profile;  // the mean of all profiles, less their shifts, over the rows
  int64_t at_limit = 0;         // projections whose shift is as large as was allowed
};

/// With parallel rays the mass that a row sees, the sum of its line integrals, does not depend on
/// the angle, as long as no column misses a part of the object: Σ over a row of R f(angle) is the
/// integral of the slice (the condition of order 0 of Helgason and Ludwig; F. Natterer, "The
/// mathematics of computerized tomography", 1986, section II.4). So the profiles over the rows
/// differ by their shift alone. `profiles` [projection, row]: that mean or sum, the same for all;
/// values that are not finite are left out. Shifts of up to `most` rows either way are looked for.
///
/// Up to 64 profiles at a time are compared with the mean of those before them, then all with the
/// mean of all, until no shift changes by 0.001 rows. A comparison is least squares over shift and
/// a constant (a beam that is a little brighter), with Huber's weights, from the best whole number
/// of rows on; the mean profile is interpolated by cubic convolution.
///
/// `reference`: the mean profile of other projections of the object [row]; the mean of these is
/// compared with it in the same way, and all shifts are measured from it. Empty: their mean is 0.
/// Cancelled if `goes_on`, which it asks before every 64 profiles, says so.
absl::StatusOr<RowDrift> FindRowDrift(int64_t projections, int64_t rows,
                                      const std::vector<float>& profiles, double most,
                                      const std::vector<double>& reference = {},
                                      const CancelCheck& goes_on = {});
/// Host memory of the profiles: those that FindRowDrift is given, and its own in f64.
int64_t RowDriftHostBytes(int64_t projections, int64_t rows);

/// The means over the detectors of sinograms [slice, angle, detector]: [angle, slice]. `scratch`
/// has room for 2 slices x angles numbers. Waits for the stream.
absl::StatusOr<std::vector<float>> RowMeans(StreamRef stream, Device& device,
                                            const PreparedShape& shape,
                                            DeviceSpan<const float> sinograms,
                                            DeviceSpan<float> scratch);

}  // namespace octavo::inline gpu
