#pragma once

#include <cstdint>
#include <string>

#include "gpu/spectral/spectral.h"
#include "server/model/scan_spec.h"
#include "server/model/status_types.h"

namespace octavo::processing {

/// The mapping of values to voxels, and the values shown: chosen from type, length and value of the
/// chain and from the ADC's bits, never from the data of the run, so that reprocessing gives the
/// same bits.
struct StoredForm {
  DType dtype = DType::kU16;
  bool has_levels = false;
  float level_lo = 0, level_hi = 0;
  // value units: the values that a picture shows as black and white; speckle and brighter
  double shown_lo = 0, shown_hi = 0;
};

/// The defaults of type and levels where the request leaves them open. `chain` is complete up to
/// step 6 (SpectralConfig); `dtype` 0: open too.
///   Type: U16 if its step is at most 0.01 dB over the whole range of the chain, which holds for DB
///       of raw integers. Else F32 (65536 steps are too coarse for magnitudes and powers, and for
///       raw F32 of unknown range); C64 for COMPLEX.
///   Levels of U16: the whole range of the chain. DB: for every number of the raw type; else for
///       every number of `adc_bits`.
///   Levels of U8 and I8: DB: from 20 dB below the noise of digitising to a full-scale constant;
///       else up to a single reflector of full contrast.
///   Floating types have no levels.
StoredForm DefaultForm(const SpectralConfig& chain, int64_t adc_bits, bool dtype_given,
                       DType dtype);

/// A line of the plan: the size of voxels, of a volume and of `slots` volumes.
std::string DescribeMemory(const model::ResolvedScan& scan, int64_t slots);

/// A warning: the share of the volume's `voxels` that was clipped, and levels that would not clip.
/// The volume must have an origin.
std::string DescribeClipping(const model::VolumeStatus& volume, int64_t voxels);

}  // namespace octavo::processing
