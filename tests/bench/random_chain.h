#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"

// Random spectral chains with the scans that feed them, and their check against double precision.
namespace octavo::bench {

struct RandomChain {
  uint64_t seed = 0;
  SpectralConfig config;
  // -- the scan
  int64_t volumes = 1;
  int64_t records = 0;  // of a volume, flyback included
  int64_t ascans = 0;   // of a volume
  math::RasterPlacement raster{};
  bool table = false;            // records are placed by `places`, else by the raster
  std::vector<int32_t> places;   // [records]: A-scan or -1; given for tables and rasters
  std::vector<BscanSpan> spans;  // the volume's B-scans
  std::vector<bool> missing;     // [volumes * records]: these never arrive
  int64_t volume_ascans = 0;     // A-scans of the target; later ones are dropped
  std::vector<int64_t> cuts[2];  // two ways to cut the stream: the ends of the blocks
  int64_t shift = 0;             // bytes of a block's memory before its records
  bool mip = false, aip = false;
  // -- its data
  std::vector<uint8_t> raw;  // all records of all volumes
  // [record, sample] as the chain sees them: the selected channel, averaged over record_average.
  std::vector<double> values;
  double full_scale = 0;  // the largest |value| of `raw`
};

/// The chain of a seed; the same in every run.
RandomChain DrawChain(uint64_t seed);
/// All drawn parameters, in words.
std::string Describe(const RandomChain& chain);

struct ChainReport {
  std::string form;                // the form that the backend uses, in a word or two
  std::string description;         // the plan's own description
  std::vector<std::string> wrong;  // the first few errors; empty = correct
  double worst = 0;                // largest error of a complex number, as a share of its tolerance
};
/// Runs `chain` in a fresh plan, in a plan that has processed junk, and with the stream cut
/// differently.
ChainReport CheckChain(const RandomChain& chain, Device& device);

}  // namespace octavo::bench
