#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpu/device/dtype.h"

namespace octavo::source {

/// A pixel format of the GenICam naming convention that can be a record's samples.
struct PixelFormat {
  const char* name;  // "Mono12Packed"
  int bits;          // of a pixel on the wire
  bool packed;       // two pixels in three bytes
  DType stored;      // in the ring
  int adc_bits;      // significant bits
  /// Copies `pixels` (even if packed) from the wire's form to `stored`.
  void (*copy)(const uint8_t* from, void* to, int64_t pixels);
};

/// Null for a format that Octavo does not take.
const PixelFormat* FindPixelFormat(const std::string& name);

/// Numbers frames from 0 by the ids that cameras give them. GigE Vision's classic ids have 16 bits,
/// skip 0 and wrap; others have 64 bits or wrap through 0.
class FrameNumbers {
 public:
  /// The frame's number; nothing for a frame that was seen before or comes too late.
  std::optional<int64_t> Number(uint64_t id);

 private:
  bool begun_ = false, zero_seen_ = false, wrapped_ = false;
  uint64_t last_id_ = 0;
  int64_t last_number_ = 0;
};

}  // namespace octavo::source
