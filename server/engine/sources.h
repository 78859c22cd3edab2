#pragma once

// Private to source*.cc and resolve.cc: one Inspect and one Open per kind of source.

#include <memory>
#include <string>
#include <vector>

#include "server/engine/source.h"

namespace octavo::engine {

/// Zeros replaced by the documented defaults. Idempotent.
SimulatedSource WithDefaults(const SimulatedSource& given, DType raw_type);
absl::StatusOr<SourceTraits> InspectSimulated(const ScanSpec& spec, const SimulatedSource& given);
std::unique_ptr<Source> OpenSimulated(const ScanSpec& resolved, const SimulatedSource& source, const Clock* clock);

absl::StatusOr<SourceTraits> InspectReplay(const ScanSpec& spec, const ReplaySource& replay, const std::vector<std::string>& roots);
absl::StatusOr<std::unique_ptr<Source>> OpenReplay(const ScanSpec& resolved, const ReplaySource& replay,
                                                   const std::vector<std::string>& roots, const Clock* clock);

}  // namespace octavo::engine
