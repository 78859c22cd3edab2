#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "gpu/base/mutex.h"
#include "gpu/device.h"
#include "server/engine/ledger.h"

namespace octavo::engine {

/// Device memory of one volume and of what is computed with it.
struct VolumeSlot {
  DeviceBuffer volume;  // [y, x, z]
  DeviceBuffer mip;     // [y, x] of ProjectionOf(the volume's dtype)
  DeviceBuffer aip;     // [y, x] f32; empty if not wanted
  DeviceBuffer digest;  // one u64
  Ledger::ChargeId charge = 0;
};

/// The slots of one scan. A slot is taken for a volume and comes back when the last reference to it ends (the volume's
/// own, a reader's, a commit's), without being freed. After Close, slots that come back are freed and their charge ends.
/// Thread-safe; references keep the pool alive.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  explicit SlotPool(Ledger* ledger) : ledger_(ledger) {}
  void Add(std::unique_ptr<VolumeSlot> slot);
  /// A free slot, or null.
  std::shared_ptr<VolumeSlot> TryTake();
  /// Waits a short while for a slot to come back.
  void WaitForReturn();
  void Close();

 private:
  void Return(VolumeSlot* slot);

  Ledger* const ledger_;
  Mutex mutex_;
  CondVar returned_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::unique_ptr<VolumeSlot>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::engine
