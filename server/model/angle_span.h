#pragma once

#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

// What the range of projection angles says about their unit.
namespace octavo::model {

/// The range of angles, and the mean distance of neighbours.
struct AngleSpan {
  double least = 0, most = 0, step = 0;
  double width() const { return most - least; }
  double turns() const { return width() / (2 * std::numbers::pi); }
  /// Whether these are the angles of a scan over `whole`, with or without its last one.
  bool Covers(double whole) const {
    return width() > whole - 1.5 * step && width() < whole + 0.5 * step;
  }
};
/// `angles`: at least one.
AngleSpan SpanOf(const std::vector<double>& angles);

inline constexpr size_t kFewAngles = 8;  // fewer angles do not reveal their unit

/// The error if the angles look like degrees: InvalidArgument that names `field`.
absl::Status CheckRadians(const std::string& field, const std::vector<double>& angles_rad);
/// A warning if the angles cover so many turns that they may be degrees.
std::optional<std::string> DoubtRadians(const std::vector<double>& angles_rad);

}  // namespace octavo::model
