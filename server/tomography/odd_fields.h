#pragma once

#include <string>
#include <vector>

#include "server/model/tomography_spec.h"
#include "server/tomography/value_sampler.h"

// Detects flat and dark fields that do not fit each other or the projections, and detectors that
// were saturated.
namespace octavo::tomography {

/// Some frames of each kind, and which of the input they are.
struct SampledFrames {
  Frames projections, flats, darks;  // no darks: the dark level is 0
  std::vector<int64_t> flat_places, dark_places;
};

/// Warnings, one sentence each or two: flat fields without light among others, or of different
/// brightness; dark fields that differ; projections that are darker than the dark fields; values
/// that pile up at the largest one; fields that are the projections themselves. There are
/// projections and flat fields in `sampled`.
std::vector<std::string> FindOddFields(const model::TomographySpec& spec,
                                       const ValueSampler& sampler, const SampledFrames& sampled);

}  // namespace octavo::tomography
