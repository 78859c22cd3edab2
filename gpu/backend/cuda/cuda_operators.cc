#include "gpu/backend/cuda/cuda_operators.h"

#include "gpu/array/array_ops.h"
#include "gpu/array/coarsen.h"
#include "gpu/array/elements.h"
#include "gpu/array/extremes.h"
#include "gpu/array/filters.h"
#include "gpu/array/flat_field.h"
#include "gpu/array/gather_ascans.h"
#include "gpu/array/motion_contrast.h"
#include "gpu/array/project.h"
#include "gpu/array/quantise.h"
#include "gpu/array/scatter.h"
#include "gpu/array/surface.h"
#include "gpu/array/warp.h"
#include "gpu/base/status.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/spectral/spectral.h"
#include "gpu/tomography/gridding.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::inline gpu::cuda {

absl::StatusOr<OperatorSet> MakeCudaOperators(Device& device) {
  OperatorSet set;
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeSpectralOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeProjectOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeCoarsenOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeQuantiseOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeResampleOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeRepeatOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeArrayOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeElementOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeExtremeOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeFilterOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeScatterOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeSurfaceOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeFlatFieldOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeWarpOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeTomographyOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeGriddingOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakePrepareOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeSinogramOps(device)));
  OCTAVO_RETURN_IF_ERROR(set.Add(MakeMosaicOps(device)));
  return set;
}

}  // namespace octavo::inline gpu::cuda
