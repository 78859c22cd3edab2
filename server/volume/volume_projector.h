#pragma once

// A plane, or a projection along one axis, of a box of a held volume, wherever its bytes are. Three
// ways lead to the same values (sums differ by the rounding of f64):
//
//   on its device in one piece   The device makes it, and only the result travels. The device
//                                memory for it is charged to the ledger. With no room for that,
//                                the next way is taken, and for planes of whole rows, which need
//                                only a copy.
//   striped                      Its B-scans come from all devices to the host, piece by piece.
//   in another tier              It is read piece by piece.
//
// Neither of the last two has more of the volume in memory than one piece, and they ask between the
// pieces whether the result is still wanted.

#include <functional>
#include <vector>

#include "absl/status/status.h"

#include "gpu/array/project_box.h"
#include "gpu/device/stream.h"
#include "server/memory/device_set.h"
#include "server/memory/ledger.h"
#include "server/volume/volume_hold.h"

namespace octavo::volume {

/// Thread-safe. Its calls wait for disks and devices.
class VolumeProjector {
 public:
  struct Context {
    memory::DeviceSet devices;
    std::vector<StreamRef> streams;  // by device, of low priority
    memory::Ledger* ledger = nullptr;
  };
  explicit VolumeProjector(Context context) : context_(std::move(context)) {}

  /// Writes the projection to `out`, host memory of ResultOf the volume's dtype, C order of the two
  /// axes that remain. `hold` is of kind kRead; the box lies in the volume. Cancelled once
  /// `unwanted` (may be null; must not block) says so. ResourceExhausted (NO_STAGING), DataLoss.
  absl::Status Project(const VolumeHold& hold, const BoxProjection& projection,
                       const std::function<bool()>& unwanted, void* out);

 private:
  absl::Status ProjectOnDevice(const VolumeHold& hold, const BoxProjection& projection, void* out);
  absl::Status ProjectOnHost(const VolumeHold& hold, const BoxProjection& projection,
                             const std::function<bool()>& unwanted, void* out);

  const Context context_;
};

}  // namespace octavo::volume
