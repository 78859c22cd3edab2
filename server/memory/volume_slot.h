#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/memory/ledger.h"

namespace octavo::memory {

/// The part of a striped volume (stripe_layout.h) on one device: its B-scans one after the other.
struct VolumeStripe {
  int device = 0;
  DeviceBuffer volume;          // [its B-scans, x, z]
  DeviceBuffer mip;             // [its B-scans, x]; copied to VolumeSlot::mip
  DeviceBuffer aip;             // the same; empty if not wanted
  DeviceBuffer digest;          // kSealWords u64, as VolumeSlot's
  Ledger::ChargeId charge = 0;  // 0: that of the slot
};

/// The seal of a volume, u64 each, in the `digest` of its slot: the digest of its voxels, and the
/// numbers of voxels clipped below and above.
inline constexpr int64_t kSealWords = 3;
inline uint64_t* ClippedIn(const DeviceBuffer& digest) {
  return digest.bytes() > 0 ? digest.as<uint64_t>() + 1 : nullptr;
}

/// Device memory of one volume and of the products computed with it.
struct VolumeSlot {
  DeviceBuffer volume;  // [y, x, z]
  DeviceBuffer mip;     // [y, x] of ProjectionOf(the volume's dtype)
  DeviceBuffer aip;     // [y, x] f32; empty if not wanted
  DeviceBuffer digest;  // kSealWords u64
  Ledger::ChargeId charge = 0;
  /// Parts of a striped volume, home first; `volume` is empty then. Else none.
  std::vector<VolumeStripe> stripes;
  int64_t stripe_bscans = 0;  // neighbouring B-scans on one device

  /// Ids of its charges, on all devices.
  std::vector<Ledger::ChargeId> charges() const;
};

/// Bytes of the parts of a slot, as allocated. Slots of one layout can take each other's place.
struct SlotLayout {
  int device = 0;
  int64_t volume = 0, mip = 0, aip = 0, digest = 0;
  int64_t sum() const { return volume + mip + aip + digest; }
  auto operator<=>(const SlotLayout&) const = default;
};

/// Slots of ended scans, kept for the next ones: allocating device memory is slow, and must not
/// happen during a running scan more often than needed. They are charged as cached, and the ledger
/// frees them for any other request. The taker of a slot scrubs it, because it holds another scan's
/// data. Thread-safe.
class SlotCache {
 public:
  /// Keeps at most `most_bytes` for each device. Registers itself with the ledger to free cached
  /// charges.
  SlotCache(Ledger* ledger, int64_t most_bytes);
  ~SlotCache();
  /// Charges of slots of this layout, for Ledger::ReserveReusing.
  std::vector<Ledger::ChargeId> Find(const SlotLayout& layout);
  /// The slot of a charge that Reserve has taken over; null if it was none of the cache's.
  std::unique_ptr<VolumeSlot> Take(Ledger::ChargeId charge);
  void Put(const SlotLayout& layout, std::unique_ptr<VolumeSlot> slot);
  /// Frees all cached slots.
  void Clear();

 private:
  struct Entry {
    SlotLayout layout;
    std::unique_ptr<VolumeSlot> slot;
  };
  void Drop(const std::vector<Ledger::ChargeId>& charges);
  /// Frees the longest cached slots of a device until at most `bytes` are left.
  void Shrink(int device, int64_t bytes);

  Ledger* const ledger_;
  const int64_t most_bytes_;
  Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // longest cached first
};

/// The slots of one scan. A volume takes a slot. The slot goes back to the pool, still allocated,
/// when its last reference ends (the volume's own, a reader's, a commit's). After Close, returning
/// slots go to the cache (without a cache: they are freed and their charge ends). Thread-safe;
/// references keep the pool alive.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  explicit SlotPool(Ledger* ledger, SlotCache* cache = nullptr, SlotLayout layout = {})
      : ledger_(ledger), cache_(cache), layout_(layout) {}
  void Add(std::unique_ptr<VolumeSlot> slot);
  /// A free slot, or null.
  std::shared_ptr<VolumeSlot> TryTake();
  /// Free slots now.
  int64_t Free();
  /// Waits a short while for a slot to come back.
  void WaitForReturn();
  void Close();

 private:
  void Return(VolumeSlot* slot);
  void LetGo(std::unique_ptr<VolumeSlot> slot);

  Ledger* const ledger_;
  SlotCache* const cache_;
  const SlotLayout layout_;
  Mutex mutex_;
  CondVar returned_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::unique_ptr<VolumeSlot>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::memory
