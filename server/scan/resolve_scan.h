#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/spectral/spectral.h"
#include "server/model/scan_spec.h"
#include "server/source/source.h"

namespace octavo::engine {

/// A scan with every default filled in and every number checked.
struct ResolvedScan {
  ScanSpec spec;
  SourceTraits source;
  SpectralConfig chain;          // valid
  int64_t volume_records = 0;    // per volume, flyback included
  int64_t shape[3] = {0, 0, 0};  // [y, x, z]
  double spacing_um[3] = {1, 1, 1};
  bool spacing_assumed[3] = {false, false, false};  // nobody said it: 1 um
  int64_t volume_bytes = 0;
  int64_t stripe_devices = 0;             // > 1: volumes are striped over so many (spec.spread.striped)
  double display_lo = 0, display_hi = 0;  // stored units: what to show as black and white
  std::vector<std::string> warnings;      // what might be a mistake of the request, one sentence each
};

/// InvalidArgument names the field in the request's dotted spelling ("pattern.raster.ascans_per_bscan"), the value and what
/// is allowed. Opens the source's files to look at them, reads no records.
absl::StatusOr<ResolvedScan> ResolveScan(const ScanSpec& spec, const std::vector<std::string>& replay_roots);

/// The spec that clients are told, which they may submit again: with the defaults that were filled in, less extents that were assumed.
ScanSpec SpecAsTold(const ResolvedScan& scan);

/// The source, what it holds as far as that is known, and how many records the scan takes, in words: the first line of the plan.
std::string DescribeSource(const ResolvedScan& scan);

/// How far apart the voxels are, in words: a line of the plan.
std::string DescribeSpacing(const ResolvedScan& scan);

/// Most records of one upload, and of a slot of the ring: a block, or as many whole blocks as make 2 MiB where a block is smaller,
/// though no more than a volume needs.
int64_t UploadRecords(const ScanSpec& resolved, int64_t volume_records);

/// An error about a field of a message within: `prefix` is where that message stands ("reprocess.").
absl::Status AtField(const std::string& prefix, const absl::Status& status);

/// The rate of records (averaged ones count as one) as far as the request tells it, in Hz; 0 = unknown. The scanner's waveforms
/// are made for this rate.
double RecordRateHz(const ScanSpec& spec);

/// The same scan with other processing, for raw records that are held: shape and dtype may change. `warnings` are those of the other
/// processing alone, and what it leaves out of that before.
absl::StatusOr<ResolvedScan> ResolveProcessingAnew(const ResolvedScan& current, const Processing& processing);

/// The same scan with other processing. InvalidArgument if shape or dtype of the volumes would change.
absl::StatusOr<ResolvedScan> ResolveUpdate(const ResolvedScan& current, const Processing& processing);

}  // namespace octavo::engine
