#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/tomography/projector.h"
#include "server/model/projection_spec.h"

namespace octavo::projection {

/// The extents of the arrays of a job, and the plan of the projector for each batch of slices.
/// Immutable.
class ProjectionGeometry {
 public:
  /// `input`: the shape of the input. InvalidArgument names fields below "projection.".
  static absl::StatusOr<ProjectionGeometry> Make(const model::ProjectionSpec& spec,
                                                 const std::vector<int64_t>& input);

  int64_t slices() const { return slices_; }
  /// Rows and columns of a slice of the input and of the result: of an image [y, x], or of a
  /// sinogram [angle, column].
  std::array<int64_t, 2> input_extents() const { return spec_.adjoint ? sinogram() : image(); }
  std::array<int64_t, 2> result_extents() const { return spec_.adjoint ? image() : sinogram(); }
  int64_t input_elements() const { return input_extents()[0] * input_extents()[1]; }  // of a slice
  int64_t result_elements() const { return result_extents()[0] * result_extents()[1]; }
  /// All slices share the axis, and therefore all batches a plan.
  bool shared_axis() const { return spec_.axis_pixels.size() <= 1; }

  /// Of the batch [first, first + count).
  ProjectorConfig ConfigFor(int64_t first, int64_t count) const;
  /// The device memory of the projector for any batch of `count` slices.
  absl::StatusOr<int64_t> ProjectorBytes(int64_t count, Device& device) const;

  /// What the job does, one step a line.
  std::string Text() const;
  /// Possible mistakes, one sentence each.
  std::vector<std::string> Warnings() const;

 private:
  ProjectionGeometry(model::ProjectionSpec spec, int64_t slices, int64_t columns,
                     int64_t image_size)
      : spec_(std::move(spec)), slices_(slices), columns_(columns), image_size_(image_size) {}
  std::array<int64_t, 2> image() const { return {image_size_, image_size_}; }
  std::array<int64_t, 2> sinogram() const { return {std::ssize(spec_.angles_rad), columns_}; }

  model::ProjectionSpec spec_;
  int64_t slices_, columns_, image_size_;
};

}  // namespace octavo::projection
