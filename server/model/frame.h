#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/base/clock.h"
#include "gpu/device/dtype.h"
#include "server/model/status_types.h"

namespace octavo::model {

/// Immutable bytes that stay valid while `owner` lives.
struct Bytes {
  std::shared_ptr<const void> owner;
  const void* data = nullptr;
  int64_t size = 0;
};

enum class Product : uint8_t {
  kMip = 1,
  kAip = 2,
  kBscan = 3,
  kVolume = 4,
  kEvent = 5,
  kAngiogram = 20,
  kSpectrum = 21,
  kAscan = 22
};                                                          // as octavo.v1.Product
enum class FrameAxis : uint8_t { kX = 1, kY = 2, kZ = 3 };  // as octavo.v1.Axis
const char* Name(Product product);                          // "mip"
bool IsImage(Product product);  // has two axes: no volume, event, spectrum or A-scan
bool IsLine(Product product);   // a spectrum or an A-scan
inline const char* Name(FrameAxis axis) {
  return axis == FrameAxis::kX ? "x" : axis == FrameAxis::kY ? "y" : "z";
}

/// The times at which a frame passed the stages of the main path; monotonic clock, ns; 0 = not
/// known. As octavo.v1.StageTimes.
struct StageTimes {
  int64_t taken_ns = 0, uploaded_ns = 0, processed_ns = 0, on_host_ns = 0, seen_ns = 0,
          sealed_ns = 0;
};

/// What stored values mean: value = offset + stored * step, in `unit` ("dB", "rad", or empty).
struct ValueScale {
  double offset = 0, step = 1;
  std::string unit;
  double ValueOf(double stored) const { return offset + stored * step; }
  double StoredOf(double value) const { return (value - offset) / step; }
};
/// That of the voxels of a volume.
ValueScale ValueScaleOf(const VolumeDescription& volume);

/// The record that a spectrum or an A-scan shows. As octavo.v1.FrameRecord.
struct RecordInfo {
  int64_t record = -1;                     // counted from the start of the scan; -1 = not known
  int64_t row = -1, column = -1;           // y and x of its A-scan in the volume
  bool corrected = false;                  // kSpectrum: as the transform gets it
  std::optional<double> minimum, maximum;  // of the payload; NaN left out
  std::optional<double> saturation_low, saturation_high;
  std::vector<uint32_t> saturated;  // ascending sample numbers
};

/// Samples [begin, end) along the depth axis; `end` 0 = not given. As octavo.v1.DepthRange.
struct DepthRange {
  int64_t begin = 0, end = 0;
  bool given() const { return end > 0; }
  auto operator<=>(const DepthRange&) const = default;
};

/// One result on its way to subscribers. Immutable once published; shared by all of them.
struct Frame {
  std::string parent, volume;  // parent: scans/<id> or jobs/<id>
  int64_t volume_index = -1;
  Product product = Product::kMip;
  FrameAxis axis = FrameAxis::kZ;
  int64_t plane_index = -1;  // kBscan of a complete volume: the plane along the axis, if known
  DepthRange slab;           // kMip over z: the depths that it shows, if a subscriber chose them
  uint64_t sequence = 0;     // per topic, without gaps at the producer
  TimePoint acquired, published;
  StageTimes stages;
  std::vector<int64_t> shape;  // image: [rows, columns]; volume: its own; event: empty
  std::vector<std::string> axes;
  std::vector<double> spacing_um;
  // Along the columns: nobody gave spacing_um, which counts samples.
  bool column_spacing_assumed = false;
  bool row_spacing_assumed = false;  // the same along the rows
  DType dtype = DType::kU8;
  double display_lo = 0, display_hi = 255;   // stored units
  ValueScale scale;                          // images
  bool complete = true;                      // false: preview of a volume being acquired
  ScanEvent event;                           // kEvent
  std::shared_ptr<const RecordInfo> record;  // kSpectrum, kAscan; else null
  Bytes payload;                             // C order
};

using FramePtr = std::shared_ptr<const Frame>;

}  // namespace octavo::model
