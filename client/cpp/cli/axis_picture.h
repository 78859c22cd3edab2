#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/v1/tomography.pb.h"

namespace octavo::cli {

/// Two projections half a turn apart, and the axis about which one is the mirror image of the
/// other. Columns are those of the projections.
struct OppositePair {
  int64_t rows = 0, columns = 0;
  std::vector<float> first, second;  // [row, column]
  std::vector<double> axes;          // of each row
  double least_part = 0.125;         // of all pixels, that both must have seen to be compared

  /// The second one, mirrored about the axis moved by `offset` columns; NaN where it saw nothing.
  std::vector<float> Mirrored(double offset) const;
  /// The root mean square of the difference of the first one and that, relative to the root mean
  /// square of the first one. NaN if they hardly overlap.
  double Difference(double offset) const;
};

/// Offsets from the axis in columns, and the differences there.
struct DifferenceCurve {
  std::vector<double> offsets, differences;
  // The offset of the least difference, between the offsets looked at; nothing: the projections do
  // not overlap enough at any of them.
  std::optional<double> least_at;
  // It is the first or the last offset where they overlap enough: the least may lie farther off.
  bool least_at_end = false;
};
DifferenceCurve CurveOf(const OppositePair& pair);

/// What lets people judge the axis of a job, in one picture: the scores of the search and the
/// difference of the opposite projections as curves with the axis marked, the deviations of the
/// half turns as bars, those of the one that is used filled, the positions of the axis along the
/// rows with the line through them, and below the two projections and their difference. `pair`:
/// null = there is none. `detector_columns`: how many columns of the detector one column of the
/// pair has. Returns whether the file could be written.
bool WriteAxisPicture(const std::string& path, const v1::TomographyReport& report,
                      const OppositePair* pair, double detector_columns);

}  // namespace octavo::cli
