#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu/tomography/reconstruct.h"

namespace octavo::inline gpu {

/// SIRT and MLEM as TomoPy's accelerated CPU code does them (axis at pixel index N/2 on even,
/// (N−1)/2 on odd grids; the rotated image leaks into the update; factors 1/dx), for comparison
/// with existing results. The counterparts of the parameters of its call:
///
///   accelerated                     TomographyForm::kTomopy
///   interpolation NN, LINEAR, CUBIC  interpolation nearest, linear, cubic; anything else is an
///                                    error, not the end of the process
///   num_iter                        iterations, an integer
///   init_recon                      `initial` of Run
///   sinogram_order                  TomographyInput::angle_first, its opposite
///   center                          none: ignored there, refused here; the corrected form honours
///                                   it
///   num_gridx, num_gridy            image_size; the accelerated code is right for the detector's
///                                   width only, so only that is allowed
///   device                          the device that Create is given; there is no silent change to
///                                   another
///   pool_size, ncore, nchunk        none: a device's threads and batches are the backend's own
///                                   choice, and results do not depend on them
///   grid_size, block_size           none: launch shapes are part of a kernel
absl::StatusOr<std::unique_ptr<Reconstructor>> MakeTomopyForm(const TomographyConfig& config,
                                                              Device& device);

/// The bytes of device memory that it takes.
int64_t TomopyFormBytes(const TomographyConfig& config);

}  // namespace octavo::inline gpu
