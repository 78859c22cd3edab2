#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/math/volume_plane.h"
#include "gpu/tomography/reconstruct.h"

namespace octavo::inline gpu {

using math::PlaneAxis;

/// A plane of the volume [z, y, x] that FBP would make: z = index (image [y, x]), y = index
/// ([z, x]) or x = index ([z, y]).
struct PlaneId {
  PlaneAxis axis = PlaneAxis::kZ;
  int64_t index = 0;
  friend bool operator==(const PlaneId&, const PlaneId&) = default;
};

struct LivePlanesConfig {
  /// The FBP whose planes are shown: its geometry, centres (none, one, or one per slice of the
  /// volume), circle, padding, filter and interpolation. Its algorithm, angles and slices are not
  /// read.
  TomographyConfig back_projection;
  int64_t slices = 0;  // of the volume, 1 … 65535
  int64_t batch = 1;   // most projections of one Add, 1 … 4096
};

/// Prepared projections in device memory, f32 [slice, angle, detector], of all slices of the
/// volume.
struct LiveProjections {
  DeviceSpan<const float> data;
  int64_t room = 0;                // angles of the array
  std::vector<double> angles_rad;  // of the first ones of them, which are added: 1 … batch
};

/// Planes of a filtered back projection that grow projection by projection, while a scan runs
/// (Buurlage et al. 2018, "Real-time reconstruction and visualisation towards dynamic feedback
/// control during time-resolved tomography experiments at TOMCAT", and 2019, J. Synchrotron Rad.
/// 26). A plane needs no other plane, so it costs a small part of a volume, and after the last
/// projection there is nothing left to do.
///
/// Angles may come in any order and number, over any number of turns. Every projection counts the
/// same: a plane is π / count times the sum of the back projections. FBP weights projections by the
/// gaps between their directions (AngleWeights); with evenly spaced directions, all of them added,
/// a plane is that of the FBP volume but for rounding in f32.
///
/// Not thread-safe. A call only enqueues on its stream, unless it says otherwise; all calls must
/// use one stream.
class LivePlanes {
 public:
  /// InvalidArgument names the field; ResourceExhausted. Waits for its own work.
  static absl::StatusOr<std::unique_ptr<LivePlanes>> Create(const LivePlanesConfig& config,
                                                            Device& device);
  /// The bytes of device memory that Create takes, and those of each plane that is begun.
  static absl::StatusOr<int64_t> DeviceBytes(const LivePlanesConfig& config, Device& device);
  static absl::StatusOr<int64_t> PlaneBytes(const LivePlanesConfig& config, PlaneAxis axis);

  virtual ~LivePlanes() = default;
  virtual int64_t rows(PlaneAxis axis) const = 0;
  virtual int64_t columns(PlaneAxis axis) const = 0;

  /// Begins a plane, or begins it anew, without a projection. Allocates the memory of a new one.
  /// InvalidArgument for an index that the volume does not have.
  virtual absl::Status Begin(StreamRef stream, const PlaneId& plane) = 0;
  /// Drops a plane and its memory, if it was begun. Waits for the stream.
  virtual absl::Status End(StreamRef stream, const PlaneId& plane) = 0;
  /// Projections in a plane; -1: it was not begun.
  virtual int64_t count(const PlaneId& plane) const = 0;

  /// Filters the projections, but for the rows that no plane needs, and adds them to these planes,
  /// which were begun. Waits for the stream, so that the caller may change the array afterwards.
  /// InvalidArgument.
  virtual absl::Status Add(StreamRef stream, const LiveProjections& projections,
                           const std::vector<PlaneId>& planes) = 0;
  /// Writes the plane as it is to `image`, f32 [rows, columns]; without a projection zeros. Waits
  /// for the stream before. InvalidArgument.
  virtual absl::Status Image(StreamRef stream, const PlaneId& plane, DeviceSpan<float> image) = 0;
};

}  // namespace octavo::inline gpu
