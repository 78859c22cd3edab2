#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

#include "gpu/device/device.h"

namespace octavo::engine {

/// What a measurement of a device shall look like. As octavo.v1.MeasureRequest; 0 and empty =
/// chosen.
struct MeasureSpec {
  std::string device;   // devices/<n>
  int64_t samples = 0;  // of a record, 64 ... 16384
  int64_t records = 0;  // of a block, 16 ... 262144
  double seconds = 0;   // of each figure, 0.01 ... 10
};

/// One figure. As octavo.v1.Measurement.
struct Measured {
  std::string name, included, unit, ceiling_name, verified;
  double value = 0;    // median of the rounds
  double ceiling = 0;  // in the same unit; 0 = none
  int64_t rounds = 0;
  double seconds_per_round = 0;
  int64_t samples = 0, records = 0;  // 0 = no matter
};

/// Whom to tell a figure, and whether to go on: an error ends the measurement with it.
using TellMeasured = std::function<absl::Status(const Measured&)>;
/// Asked between rounds; an error ends the measurement with it.
using MayGoOn = std::function<absl::Status()>;

/// Checks `spec` and fills in what was left to choose. InvalidArgument names the field.
absl::Status ResolveMeasure(MeasureSpec* spec, const Device& device);
/// Device memory that MeasureDevice allocates, bytes; an upper bound.
int64_t MeasureBytes(const MeasureSpec& resolved, Device& device);

/// Measures copies, the smallest job and the spectral chain on `device`, resident and streamed.
/// Takes some seconds; waits. It checks each output before it reports the figure: bytes against
/// bytes, voxels against the chain in double precision, written from its equations. DataLoss
/// (MEASUREMENT_WRONG) instead of a figure whose output is not right.
absl::Status MeasureDevice(Device& device, const MeasureSpec& resolved, const MayGoOn& may_go_on,
                           const TellMeasured& tell);

}  // namespace octavo::engine
