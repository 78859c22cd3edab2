#pragma once

#include <cstdint>
#include <optional>
#include <vector>

// The rotation axis as a line on the detector, from its position in several groups of rows.
namespace octavo::inline gpu {

/// The axis in one group of rows.
struct AxisPoint {
  double row = 0;          // the middle of the group
  double center = 0;       // column of the axis there
  double uncertainty = 0;  // standard deviation of `center`, columns; > 0
  bool determined = true;  // false: the group does not tell where the axis is, and is left out
};

/// column = offset + slope row.
struct AxisLine {
  double offset = 0;                                     // column at row 0
  double slope = 0;                                      // columns per row
  double offset_uncertainty = 0, slope_uncertainty = 0;  // standard deviations
  /// The mean row of the points used, by their weights. There the column is known best, and does
  /// not depend on the slope.
  double mean_row = 0;
  double mean_uncertainty = 0;  // of the column at mean_row
  double residual_rms = 0;      // of the points used, columns
  std::vector<bool> used;       // of each point, whether it lies on the line
  int64_t points_used = 0;

  double At(double row) const { return offset + slope * row; }
  /// Whether the axis leans: the slope exceeds two standard deviations, and moves the axis by 0.1
  /// columns or more over `rows` rows.
  bool Leans(double rows) const;
};

/// Fits a line through the points that are determined. The start is the line of repeated medians,
/// which half of the points may miss by any distance (A. Siegel, "Robust regression using repeated
/// medians", Biometrika 69 (1982) 242-244). Points farther from it than three standard deviations
/// of the scatter are set aside. From there least squares are iterated with the weights of the
/// uncertainties and of P. Huber ("Robust statistics", 1981, chapter 7; constant 1.345 after
/// Holland and Welsch 1977). The points within three standard deviations of that line give the line
/// by weighted least squares; the others are not used. If the points scatter more than their
/// uncertainties say, the standard deviations grow by that factor. Nothing if fewer than three
/// points are determined, or all have one row.
std::optional<AxisLine> FitAxisLine(const std::vector<AxisPoint>& points);

/// The line on the detector, of a line that was found in projections turned by `degrees` about the
/// middle of the detector (gpu/math/turning.h: DetectorTurn): its tilt is `degrees` more.
AxisLine TurnedBack(const AxisLine& found, double degrees, double middle_row, double middle_column);

}  // namespace octavo::inline gpu
