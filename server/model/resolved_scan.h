#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/spectral/spectral.h"
#include "server/model/scan_spec.h"
#include "server/model/source_traits.h"

namespace octavo::model {

/// A scan with every default filled in and every number checked.
struct ResolvedScan {
  ScanSpec spec;
  // As the client gave it when it submitted and updated the scan: without the defaults that `spec`
  // has. An update changes this.
  Processing requested;
  SourceTraits source;
  SpectralConfig chain;          // valid
  int64_t volume_records = 0;    // per volume, flyback included
  int64_t shape[3] = {0, 0, 0};  // [y, x, z]
  double spacing_um[3] = {1, 1, 1};
  bool spacing_assumed[3] = {false, false, false};  // not given: 1 um
  int64_t volume_bytes = 0;
  // > 1: volumes are striped over this many devices (spec.spread.striped)
  int64_t stripe_devices = 0;
  double display_lo = 0, display_hi = 0;  // stored units: the values to show as black and white
  std::vector<std::string> warnings;      // possible mistakes of the request, one sentence each
};

/// Most records of one upload, and of a slot of the ring: a block, or as many whole blocks as make
/// 2 MiB if a block is smaller, but no more than a volume needs.
int64_t UploadRecords(const ScanSpec& resolved, int64_t volume_records);

/// The rate of records (averaged ones count as one), if the request determines it, in Hz; 0 =
/// unknown. The scanner's waveforms are made for this rate.
double RecordRateHz(const ScanSpec& spec);

}  // namespace octavo::model
