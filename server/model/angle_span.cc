#include "server/model/angle_span.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_format.h"

#include "gpu/base/status.h"

namespace octavo::model {
namespace {

constexpr double kPi = std::numbers::pi;

/// Golden angles that were not reduced to a turn: 76 of them cover 180, 151 cover 360. A step of
/// 180 / 75 is another one.
bool IsGolden(const AngleSpan& span) {
  const double turned = std::abs(std::remainder(span.step, 2 * kPi)),
               ratio = 0.5 * (std::sqrt(5.0) - 1);
  return std::min(std::abs(turned - kPi * (3 - std::sqrt(5.0))), std::abs(turned - kPi * ratio)) <
         1e-5;
}

}  // namespace

AngleSpan SpanOf(const std::vector<double>& angles) {
  const auto [least, most] = std::minmax_element(angles.begin(), angles.end());
  return {.least = *least,
          .most = *most,
          .step = (*most - *least) / static_cast<double>(std::max<size_t>(angles.size() - 1, 1))};
}

absl::Status CheckRadians(const std::string& field, const std::vector<double>& angles_rad) {
  if (angles_rad.size() < kFewAngles) return absl::OkStatus();
  const AngleSpan span = SpanOf(angles_rad);
  if (IsGolden(span) || !(span.Covers(180) || span.Covers(360))) return absl::OkStatus();
  return InvalidField(
      field, absl::StrFormat("makes the angles %g to %g radians, %.1f turns; these look like "
                             "degrees. Allowed are radians: multiply degrees by pi / 180",
                             span.least, span.most, span.turns()));
}

std::optional<std::string> DoubtRadians(const std::vector<double>& angles_rad) {
  if (angles_rad.size() < kFewAngles) return std::nullopt;
  const AngleSpan span = SpanOf(angles_rad);
  if (span.turns() <= 2 || IsGolden(span)) return std::nullopt;
  return absl::StrFormat(
      "The angles cover %g to %g radians, %.1f turns. If they are degrees, "
      "multiply them by pi / 180.",
      span.least, span.most, span.turns());
}

}  // namespace octavo::model
