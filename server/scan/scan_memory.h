#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/memory/ledger.h"
#include "server/memory/stripe_layout.h"
#include "server/memory/volume_slot.h"
#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"
#include "server/processing/chain_state.h"

namespace octavo::scan {

inline constexpr int kRawBuffers = 3;  // raw blocks on each device

// what a scan needs; computed before it is admitted
/// Device memory that the scan needs, in the order in which ScanMemory takes its charges.
std::vector<model::AdmissionReport::Item> Needs(const model::ResolvedScan& scan, Device& device);
/// The same for a device that processes only its share of the B-scans.
std::vector<model::AdmissionReport::Item> PeerNeeds(const model::ResolvedScan& scan,
                                                    Device& device);
int64_t VolumeSlots(const model::ResolvedScan& scan);
memory::SlotLayout LayoutOf(const model::ResolvedScan& scan, int device);
int64_t PinnedBytes(const model::ResolvedScan& scan);
/// How the B-scans of a striped scan's volumes are distributed; needs scan.stripe_devices.
memory::StripeRule StripesOf(const model::ResolvedScan& scan);
/// Bytes of the largest plane of a volume.
int64_t LargestPlane(const model::ResolvedScan& scan);
/// Bytes of one prepared frame (a B-scan or an en face plane), and the number of prepared frames.
int64_t FrameBytes(const model::ResolvedScan& scan);
int64_t PreparedFrames(const model::ResolvedScan& scan);

/// Allocates the memory of a volume that lies on one device.
absl::Status AllocateSlot(const model::ResolvedScan& scan, Device& device,
                          memory::VolumeSlot* slot);

/// One device of a scan, with the scan's charges there.
struct ScanDevice {
  Device* device = nullptr;
  int index = 0;
  /// Reserved for Needs (the first device, home) or PeerNeeds (the others).
  std::vector<memory::Ledger::ChargeId> charges;
};

/// A scan's holdings in the ledger: the slots of its volumes and of their raw records, memory for
/// chain products, and the charges of all memory that its other parts allocate.
class ScanMemory {
 public:
  ScanMemory(const model::ResolvedScan& scan, memory::Ledger* ledger, memory::SlotCache* cache,
             std::vector<ScanDevice> devices);

  /// Allocates the slots, or takes them from the cache and enqueues their scrubbing on `stream`, of
  /// the home device.
  absl::Status AllocateSlots(StreamRef stream);
  /// Allocates the memory of the chains. Call last.
  absl::Status AllocateChains();
  /// Call once nothing can fail any more. From then on each charge ends with the memory that it
  /// covers; before, the charges belong to the caller.
  void Begin();
  bool begun() const { return begun_; }

  memory::SlotPool& slots() { return *slots_; }
  memory::SlotPool* raw_slots() { return raw_slots_.get(); }  // null without retention.hold_raw
  /// Memory for the scan's chains; null: no chains, or the scan is over. Thread-safe.
  std::shared_ptr<processing::ChainState> chains();

  /// The scan is over. Products still being made keep the chains' memory.
  void EndChains();
  /// Destroys the free slots; the others follow when their volumes leave them.
  void CloseSlots();
  /// Releases the charges of memory that has been freed.
  void ReleaseCharges();

 private:
  using Slots = std::vector<std::unique_ptr<memory::VolumeSlot>>;
  absl::Status AllocateStriped(memory::VolumeSlot* slot);
  absl::Status AllocateRawSlots();
  size_t ChargesOfChains() const;

  const model::ResolvedScan& scan_;
  memory::Ledger* const ledger_;
  memory::SlotCache* const cache_;  // null: the scan frees its slots at its end
  const std::vector<ScanDevice> devices_;
  const size_t slot_count_;
  const std::shared_ptr<memory::SlotPool> slots_;
  std::shared_ptr<memory::SlotPool> raw_slots_;
  bool begun_ = false;
  Slots made_, made_raw_;  // until Begin; slots in a pool release their charges themselves
  std::vector<memory::Ledger::ChargeId> charges_;  // without those of slots and chains
  Mutex mutex_;
  std::shared_ptr<processing::ChainState> chains_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::scan
