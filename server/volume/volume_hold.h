#pragma once

#include <cstdint>
#include <memory>

#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/storage/spill/spill_folder.h"
#include "server/volume/spilled_volume.h"

namespace octavo::volume {

/// What a VolumeHold guarantees while it lives.
enum class HoldKind : uint8_t {
  kNone,    // nothing
  kMemory,  // the memory that holds the bytes now stays, in any tier
  kRead,    // as kMemory, and the bytes can be read: `cursor` is open if they are off the device
  kDevice,  // as kMemory, and the bytes lie on the device in one piece
  kLoan,    // a LIVE ring does not overwrite the volume; the bytes themselves are not kept
};

/// A scoped hold of a volume: it ends when its last copy is destroyed, on every path. The unscoped
/// holds, kept and marked, are states of the volume (server/volume/README.md). The end of a loan
/// takes the store's lock, so every loan must end before the store.
struct VolumeHold {
  HoldKind kind = HoldKind::kNone;
  model::VolumeStatus status;  // as it was when the hold began; empty for a loan
  // Where the bytes are: exactly one of these is set, none for a loan.
  std::shared_ptr<const memory::VolumeSlot> slot;
  std::shared_ptr<const SpilledVolume> spilled;  // the bytes are not on the device
  int device = 0;
  std::shared_ptr<storage::SpillCursor> cursor;  // reads `spilled` for kRead
  std::shared_ptr<const void> loan;              // gives the loan back

  /// Ends the hold before its scope does, for a caller that then reports the slot as free.
  void Release() {
    slot = nullptr;
    cursor = nullptr;
    spilled = nullptr;
    loan = nullptr;
    kind = HoldKind::kNone;
  }
};

}  // namespace octavo::volume
