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
/// look at them, reads no records.
absl::StatusOr<model::ResolvedScan> ResolveScan(const model::ScanSpec& spec,
                                                const std::vector<std::string>& replay_roots);

/// The spec that clients are told, which they may submit again: with the defaults that were filled
/// in, less extents that were assumed.
model::ScanSpec SpecAsTold(const model::ResolvedScan& scan);

/// Records that a counted scan is made of; 0 = until stopped.
int64_t RecordsWanted(const model::ResolvedScan& scan);

/// The source, what it holds as far as that is known, and how many records the scan takes, in
/// words: the first line of the plan.
std::string DescribeSource(const model::ResolvedScan& scan);

/// How far apart the voxels are, in words: a line of the plan.
std::string DescribeSpacing(const model::ResolvedScan& scan);

}  // namespace octavo::scan
