#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

#include "gpu/device/device.h"

namespace octavo::engine {

/// Parameters of a device measurement. As octavo.v1.MeasureRequest; 0 and empty = server's choice.
struct MeasureSpec {
  std::string device;   // devices/<n>
  int64_t samples = 0;  // of a record, 64 ... 16384
  int64_t records = 0;  // of a block, 16 ... 262144
  double seconds = 0;   // of each figure, 0.01 ... 10
};

/// What is measured. Values as in octavo.v1.Measurement.Figure.
enum class Figure : uint8_t {
  kNone,
  kUpload,
  kDownload,
  kDeviceCopy,
  kLaunch,
  kResident,
  kResidentNoDispersion,
  kStreamed,
  kStreamedPacked
};

/// One figure. As octavo.v1.Measurement.
struct Measured {
  Figure figure = Figure::kNone;
  std::string included, unit, ceiling_name, verified;
  double value = 0;    // median of the rounds
  double ceiling = 0;  // in the same unit; 0 = none
  int64_t rounds = 0;
  double seconds_per_round = 0;
  int64_t samples = 0, records = 0;  // 0 = not relevant
};

/// Receives each figure; an error ends the measurement with that error.
using TellMeasured = std::function<absl::Status(const Measured&)>;
/// Called between rounds; an error ends the measurement with that error.
using MayGoOn = std::function<absl::Status()>;

/// Checks `spec` and fills in the values left open. InvalidArgument names the field.
absl::Status ResolveMeasure(MeasureSpec* spec, const Device& device);
/// Device memory that MeasureDevice allocates, bytes; an upper bound.
int64_t MeasureBytes(const MeasureSpec& resolved, Device& device);

/// Measures copies, the smallest job and the spectral chain on `device`, resident and streamed.
/// Blocks for some seconds. It checks each output before it reports the figure: bytes against
/// bytes, voxels against the chain in double precision, written from its equations. DataLoss
/// (MEASUREMENT_WRONG) replaces a figure whose output is wrong.
absl::Status MeasureDevice(Device& device, const MeasureSpec& resolved, const MayGoOn& may_go_on,
                           const TellMeasured& tell);

}  // namespace octavo::engine
