#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu/device/device.h"
#include "gpu/device/digest.h"
#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"

namespace octavo::memory {

/// The places of a striped volume's B-scans: a run of neighbouring ones on the first device, the
/// next run on the second, and so on in turn; on each device they follow each other without gaps.
/// Devices are in the order of VolumeStatus.spread_devices.
struct StripeRule {
  int64_t bscans = 1;   // neighbouring B-scans on one device
  int64_t devices = 1;  // >= 1

  int64_t DeviceOf(int64_t y) const { return y / bscans % devices; }
  int64_t LocalOf(int64_t y) const { return y / (bscans * devices) * bscans + y % bscans; }
  /// Number of `rows` on the device with the most: the first.
  int64_t MostRows(int64_t rows) const { return RowsOf(0, rows); }
  /// Number of `rows` on this device.
  int64_t RowsOf(int64_t device, int64_t rows) const;
  /// One past the last B-scan of the run that y is in.
  int64_t RunEnd(int64_t y) const { return (y / bscans + 1) * bscans; }
  /// Positions of the bytes of this device's part in the whole volume, for Device::DigestOfPart.
  DigestPlace PlaceOf(int64_t device, int64_t bscan_bytes) const {
    return {.first_byte = device * bscans * bscan_bytes,
            .run_bytes = bscans * bscan_bytes,
            .stride_bytes = devices * bscans * bscan_bytes};
  }
};

/// The layout of a volume in `slot` (not striped: one device with one run of all rows).
StripeRule StripesOf(const model::VolumeStatus& volume, const VolumeSlot& slot);

/// Enqueues copying bytes [at, at + bytes) of the C-order volume in `slot` to page-locked host
/// memory, from all devices. `device` is its home, `stream` one of that device. Does not
/// synchronise; both memories must stay until `stream` has passed.
absl::Status CopyVolumeBytes(Device& device, StreamRef stream, void* dst, const VolumeSlot& slot,
                             const model::VolumeStatus& volume, int64_t at, int64_t bytes);
/// The same of a box, packed.
absl::Status CopyVolumeBox(Device& device, StreamRef stream, void* dst, const VolumeSlot& slot,
                           const model::VolumeStatus& volume, const Box3& box);

}  // namespace octavo::memory
