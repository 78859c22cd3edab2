#pragma once

#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/base/status.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::inline gpu {

/// The operator families of one device that preprocessing and the search for the axis share. They
/// live as long as the device.
struct TomographyFamilies {
  ArrayOps& arrays;
  PrepareOps& prepare;
  SinogramOps& sinograms;
  TomographyOps& tomography;
};

inline absl::StatusOr<TomographyFamilies> FindTomographyFamilies(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(ArrayOps* const arrays, FindOperators<ArrayOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(PrepareOps* const prepare, FindOperators<PrepareOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(SinogramOps* const sinograms, FindOperators<SinogramOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const tomography, FindOperators<TomographyOps>(device));
  return TomographyFamilies{
      .arrays = *arrays, .prepare = *prepare, .sinograms = *sinograms, .tomography = *tomography};
}

}  // namespace octavo::inline gpu
