#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"

// Spectral chains drawn at random, with the scans that feed them, and their check against double
// precision.
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
  std::vector<int32_t> places;   // [records]: A-scan or -1, whatever places them
  std::vector<BscanSpan> spans;  // the volume's B-scans
  std::vector<bool> missing;     // [volumes * records]: these never come
  int64_t volume_ascans = 0;     // A-scans of the target; those from there on are dropped
  std::vector<int64_t> cuts[2];  // two ways to cut the stream: where each block ends
  int64_t shift = 0;             // bytes of a block's memory before its records
  bool mip = false, aip = false;
  // -- its data
  std::vector<uint8_t> raw;    // all records of all volumes
  std::vector<double> values;  // [record, sample] as the chain sees them: the chosen channel, means
                               // of record_average
  double full_scale = 0;       // the largest |value| of `raw`
};

/// The chain of a seed: always the same.
RandomChain DrawChain(uint64_t seed);
/// All drawn parameters, in words.
std::string Describe(const RandomChain& chain);

struct ChainReport {
  std::string form;                // how the backend does it, in a word or two
  std::string description;         // the plan's own words
  std::vector<std::string> wrong;  // the first few errors; empty = correct
  double worst = 0;                // largest part of the tolerance that a complex number took
};
/// Runs `chain` in a fresh plan, in one that has seen junk, and with the stream cut otherwise.
ChainReport CheckChain(const RandomChain& chain, Device& device);

}  // namespace octavo::bench
