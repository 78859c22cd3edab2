#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "server/pattern/plan.h"

namespace octavo::picture {

/// A PNG of a scan pattern: left, the path of the beam (x to the right, y up, equal scales); right,
/// x and y over time. A-scans are drawn blue, flyback orange. Milliseconds of work.
absl::StatusOr<std::string> PlotPattern(const pattern::PatternWaveform& waveform);

}  // namespace octavo::picture
