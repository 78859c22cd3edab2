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

}  // namespace octavo::cli
