#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/cli/axis_picture.h"

namespace octavo::cli {

/// The two halves of a scan over a full turn with the axis near one side: in the sinogram of one
/// row, all of them; in two opposite projections, all rows.
struct Seam {
  bool axis_right = false;  // the axis is near the last column, else near the first
  double overlap = 0;       // columns that both halves see
  OppositePair pair;        // about the axis that the overlap says
};

/// Overlaps in columns, and how well the halves agree there.
struct OverlapCurve {
  std::vector<double> overlaps, correlations;  // -1 ... 1; NaN where a half shows nothing
  /// Between the two overlaps beside `overlap`; NaN beyond the curve.
  double At(double overlap) const;
  /// The overlap of the greatest correlation; NaN if there is none.
  double Best() const;
};
/// Of a sinogram [projection, column] whose projection i + half_turn is opposite to i: of all
/// overlaps from 4 columns on, by up to 64 projections of each half.
OverlapCurve CurveOf(const std::vector<float>& sinogram, int64_t columns, int64_t half_turn,
                     bool axis_right);

/// The first projection with the mirrored second one on the other side of the axis, [row, column],
/// and the columns of the axis in it.
struct JoinedPair {
  int64_t columns = 0;
  std::vector<float> values;
  std::vector<double> axes;  // of each row
};
JoinedPair Join(const Seam& seam);

/// What lets people judge an overlap, in one picture: the correlation of the halves against it, the
/// two opposite projections joined at the axis, and what both saw, side by side and as a
/// difference. `degrees`: from the first to the second projection. Returns whether the file could
/// be written.
bool WriteSeamPicture(const std::string& path, const Seam& seam, const OverlapCurve& curve,
                      double degrees);

}  // namespace octavo::cli
