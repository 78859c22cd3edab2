#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "octavo/v1/tomography.pb.h"

#include "client/cpp/cli/words.h"

namespace octavo::cli {

/// How the rotation axis of a job became known: "pairs, +- 0.03 columns", "vo, score 0.0123",
/// "middle". Methods without an uncertainty have the score of the axis that they took.
inline std::string HowAxisWasFound(const v1::TomographyReport& report) {
  using Report = v1::TomographyReport;
  std::string text = InWords(report.center_source());
  if (report.center_uncertainty() > 0)
    return absl::StrCat(text, absl::StrFormat(", +- %.2g columns", report.center_uncertainty()));
  const auto& scores = report.scores();
  const bool least = report.center_source() == Report::CENTER_SOURCE_VO ||
                     report.center_source() == Report::CENTER_SOURCE_ENTROPY;
  if (scores.empty() ||
      (!least && report.center_source() != Report::CENTER_SOURCE_PHASE_CORRELATION))
    return text;
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  return absl::StrCat(text, absl::StrFormat(", score %.4g", least ? *low : *high));
}

/// How an axis that was searched in several groups of rows leans, for a summary: ", which leans by
/// 1.7 +- 0.02 degrees: projections are turned". Empty if no line was searched.
inline std::string HowAxisLeans(const v1::TomographyReport& report) {
  if (!report.has_axis_line()) return "";
  const v1::AxisLine& line = report.axis_line();
  if (line.rounds().empty()) return ", no line along the rows";
  if (!line.leans()) return ", which does not lean";
  return absl::StrCat(
      absl::StrFormat(", which leans by %.3g +- %.2g degrees: ", line.tilt_degrees(),
                      line.rounds().rbegin()->uncertainty_degrees()),
      line.turned_degrees() != 0 ? "projections are turned" : "each slice has its own");
}

}  // namespace octavo::cli
