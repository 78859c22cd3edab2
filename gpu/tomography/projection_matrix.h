#pragma once

// Private to reconstruct.cc and projector.cc: the projection matrix that both apply.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/status.h"
#include "gpu/device/buffer.h"
#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/tomography/reconstruct_kernels.h"
#include "gpu/tomography/reconstruct_plan.h"

namespace octavo::inline gpu {

/// The extents of images and sinograms in the layout of RayView, with room for all slices of a
/// configuration.
struct RayLayout {
  int64_t groups = 0, lanes = 1;
  int64_t one_image = 0, one_sinogram = 0;  // f32 elements of one slice, margins included
  int64_t table_bytes = 0;                  // of the tables of a ProjectionMatrix
  int64_t image() const { return groups * lanes * one_image; }
  int64_t sinogram() const { return groups * lanes * one_sinogram; }
};
RayLayout LayOutRays(const TomographyConfig& config, const TomographyGrid& grid,
                     const TomographyOps& ops);

/// The matrix A of a plan on one device (gpu/math/rotation.h has its formula): the tables of its
/// geometry, and A and Aᵀ in pieces of work, between which the caller may give up. The operators
/// write between the margins only, so memory that is zero at first has zero margins ever after. All
/// referenced objects must outlive it.
class ProjectionMatrix {
 public:
  ProjectionMatrix(const TomographyConfig& config, const TomographyPlan& plan, Device& device,
                   TomographyOps& ops);

  /// Allocates the tables and uploads them. Waits for the stream.
  absl::Status Init(StreamRef stream);
  /// The next calls are for the first `slices` slices of the configuration.
  void BeginRun(int64_t slices);
  /// The caller has just been asked whether to go on: what is enqueued counts from here.
  void BeginPiece() { samples_ = 0; }

  const RayLayout& layout() const { return layout_; }
  const RayView& view() const { return view_; }
  /// The configuration's index of each angle of the view.
  DeviceSpan<const int32_t> order() const { return order_.span<int32_t>(); }

  /// sinogram = A image for the angles of `range`. `transposed` is TomographyOps::Transpose of the
  /// image; null where range.split == range.end. Cancelled if `goes_on` says no.
  absl::Status Forward(StreamRef stream, const CancelCheck& goes_on, const AngleRange& range,
                       DeviceSpan<const float> image, DeviceSpan<const float> transposed,
                       DeviceSpan<float> sinogram);
  /// image = Aᵀ sinogram over the angles of `range`, zero outside the circle.
  absl::Status Back(StreamRef stream, const CancelCheck& goes_on, const AngleRange& range,
                    DeviceSpan<const float> sinogram, DeviceSpan<float> image);

  /// Calls enqueue(begin, end) for all of `range` in multiples of `multiple`. Each of its elements
  /// takes `samples_each` interpolated values. Asks `goes_on` after each piece of work.
  template <class F>
  absl::Status InPieces(StreamRef stream, const CancelCheck& goes_on,
                        std::pair<int64_t, int64_t> range, int64_t multiple, int64_t samples_each,
                        F enqueue) {
    const int64_t piece = config_.piece_samples > 0 ? config_.piece_samples : ops_.PieceSamples();
    const int64_t step =
        std::max<int64_t>(piece / std::max<int64_t>(samples_each, 1) / multiple, 1) * multiple;
    for (int64_t at = range.first; at < range.second; at += step) {
      const int64_t end = std::min(at + step, range.second);
      if (samples_ > 0 && samples_ + (end - at) * samples_each > piece) {
        samples_ = 0;
        OCTAVO_RETURN_IF_ERROR(CheckCancelled(stream, goes_on));
      }
      samples_ += (end - at) * samples_each;
      OCTAVO_RETURN_IF_ERROR(enqueue(at, end));
    }
    return absl::OkStatus();
  }

 private:
  template <class T>
  absl::Status Upload(StreamRef stream, const std::vector<T>& values, DeviceBuffer& buffer) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    OCTAVO_ASSIGN_OR_RETURN(buffer, device_.Allocate(bytes));
    OCTAVO_RETURN_IF_ERROR(device_.Upload(stream, buffer.span<T>(), values));
    return stream.Synchronize();  // after this the caller may free `values`
  }

  const TomographyConfig& config_;
  const TomographyPlan& plan_;
  Device& device_;
  TomographyOps& ops_;
  const RayLayout layout_;
  RayView view_;
  int64_t samples_ = 0;  // enqueued since the caller was last asked
  DeviceBuffer forward_, back_, order_, centers_;
};

}  // namespace octavo::inline gpu
