#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/math/rotation.h"

namespace octavo::inline gpu {

/// The geometry of a parallel-beam projection A, whose formula is at the head of
/// gpu/math/rotation.h. Bin d of the detector lies (d − centre) pixels from the axis, which passes
/// the middle of the image; x points right, y up, angles turn counter-clockwise: the ray at
/// distance s from the axis is x cos θ + y sin θ = s.
struct ProjectorConfig {
  std::vector<double> angles_rad;  // one per projection, any order, also repeated; 1 … 65536 (jobs: 65535)
  int64_t detectors = 0;           // bins of a projection, 2 … 32768
  int64_t slices = 0;              // most slices of a run, 1 … 4096
  std::vector<double>
      centers;  // pixel index of the axis: one, or one per slice; empty = (detectors − 1)/2
  int64_t image_size = 0;  // rows and columns of an image, up to 32768; 0 = detectors
  double pixel_size = 1;   // of image and detector, 1e-12 … 1e12: the unit of lengths along rays
  math::RayInterpolation interpolation = math::RayInterpolation::kLinear;
  double mask_ratio = 0;  // pixels outside the circle of this part of half the image's width count
                          // as 0, and the adjoint leaves them 0; 0 = the whole image, up to 1

  int64_t piece_samples = 0;  // as TomographyConfig::piece_samples
};

/// The projection A and its exact adjoint Aᵀ, as the iterative reconstruction has them: the same
/// operators, order of angles and interleaved slices. Plan once, run often, one run at a time. Only
/// Create allocates memory. A slice does not depend on the others of its run but for rounding.
/// Results repeat bit for bit on one device.
class Projector {
 public:
  /// InvalidArgument names the field; ResourceExhausted if the device has too little memory.
  static absl::StatusOr<std::unique_ptr<Projector>> Create(const ProjectorConfig& config,
                                                           Device& device);
  /// The bytes of device memory that Create would take. InvalidArgument as Create.
  static absl::StatusOr<int64_t> DeviceBytes(const ProjectorConfig& config, Device& device);

  virtual ~Projector() = default;
  /// sinograms = A images: device f32 [slice, angle, detector] from [slice, y, x], row 0 on top.
  /// `slices`: 1 … config.slices, with the first axes of the configuration. Enqueues on `stream`
  /// and waits. InvalidArgument for images that are not finite; Cancelled if `goes_on`, which it
  /// calls between pieces of work, says no.
  virtual absl::Status Project(StreamRef stream, int64_t slices, DeviceSpan<const float> images,
                               DeviceSpan<float> sinograms, const CancelCheck& goes_on) = 0;
  /// images = Aᵀ sinograms. As Project; InvalidArgument for sinograms that are not finite.
  virtual absl::Status BackProject(StreamRef stream, int64_t slices,
                                   DeviceSpan<const float> sinograms, DeviceSpan<float> images,
                                   const CancelCheck& goes_on) = 0;
};

}  // namespace octavo::inline gpu
