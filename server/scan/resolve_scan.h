#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/resolved_scan.h"
#include "server/model/scan_spec.h"

namespace octavo::scan {

/// InvalidArgument names the field in the request's dotted spelling
/// ("pattern.raster.ascans_per_bscan"), the value and what is allowed. Opens the source's files to
/// inspect them but reads no records.
absl::StatusOr<model::ResolvedScan> ResolveScan(const model::ScanSpec& spec,
                                                const std::vector<std::string>& replay_roots);

/// The spec that clients see and may submit again: includes the defaults that were filled in, omits
/// extents that were assumed.
model::ScanSpec SpecAsTold(const model::ResolvedScan& scan);

/// Number of records in a counted scan; 0 = until stopped.
int64_t RecordsWanted(const model::ResolvedScan& scan);

/// Describes the source, its contents if known, and how many records the scan takes: the first line
/// of the plan.
std::string DescribeSource(const model::ResolvedScan& scan);

/// Describes the voxel spacing: a line of the plan.
std::string DescribeSpacing(const model::ResolvedScan& scan);

}  // namespace octavo::scan
