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

// -- what a scan needs: known before it is admitted
/// Of device memory, in the order that ScanMemory takes its charges.
std::vector<model::AdmissionReport::Item> Needs(const model::ResolvedScan& scan, Device& device);
/// The same of a device that only takes its share of the B-scans.
std::vector<model::AdmissionReport::Item> PeerNeeds(const model::ResolvedScan& scan,
                                                    Device& device);
int64_t VolumeSlots(const model::ResolvedScan& scan);
memory::SlotLayout LayoutOf(const model::ResolvedScan& scan, int device);
int64_t PinnedBytes(const model::ResolvedScan& scan);
/// Where the B-scans of a striped scan's volumes go; needs scan.stripe_devices.
memory::StripeRule StripesOf(const model::ResolvedScan& scan);
/// Bytes of the largest plane through a volume.
int64_t LargestPlane(const model::ResolvedScan& scan);
/// Frames of a B-scan or an en face plane that are prepared for a scan, and bytes of one.
int64_t FrameBytes(const model::ResolvedScan& scan);
int64_t PreparedFrames(const model::ResolvedScan& scan);

/// The memory of a volume that lies on one device.
absl::Status AllocateSlot(const model::ResolvedScan& scan, Device& device,
                          memory::VolumeSlot* slot);

/// One device of a scan, and what the scan is charged there.
struct ScanDevice {
  Device* device = nullptr;
  int index = 0;
  /// As reserved for Needs (the first device, home) or PeerNeeds (the others).
  std::vector<memory::Ledger::ChargeId> charges;
};

/// What a scan holds of the ledger: the slots of its volumes and of their raw records, memory for
/// what its chains make of them, and the charges of all that its other parts allocate.
class ScanMemory {
 public:
  ScanMemory(const model::ResolvedScan& scan, memory::Ledger* ledger, memory::SlotCache* cache,
             std::vector<ScanDevice> devices);

  /// Allocates the slots, or takes them from the cache and enqueues on `stream`, of the home
  /// device, what scrubs them.
  absl::Status AllocateSlots(StreamRef stream);
  /// Allocates what the chains need; after everything else.
  absl::Status AllocateChains();
  /// Nothing can fail any more: from here on the charges end with what they are for. Before that
  /// they are the caller's.
  void Begin();
  bool begun() const { return begun_; }

  memory::SlotPool& slots() { return *slots_; }
  memory::SlotPool* raw_slots() { return raw_slots_.get(); }  // null without retention.hold_raw
  /// What the scan's chains may use; null: no chains, or the scan is over. Thread-safe.
  std::shared_ptr<processing::ChainState> chains();

  /// The scan is over; what is still being made keeps the chains' memory.
  void EndChains();
  /// Free slots go; the others when their volumes do.
  void CloseSlots();
  /// The charges of what is freed by now end.
  void ReleaseCharges();

 private:
  using Slots = std::vector<std::unique_ptr<memory::VolumeSlot>>;
  absl::Status AllocateStriped(memory::VolumeSlot* slot);
  absl::Status AllocateRawSlots();
  size_t ChargesOfChains() const;

  const model::ResolvedScan& scan_;
  memory::Ledger* const ledger_;
  memory::SlotCache* const cache_;  // null: slots are freed with the scan
  const std::vector<ScanDevice> devices_;
  const size_t slot_count_;
  const std::shared_ptr<memory::SlotPool> slots_;
  std::shared_ptr<memory::SlotPool> raw_slots_;
  bool begun_ = false;
  Slots made_, made_raw_;  // until Begin: slots in a pool release their charges themselves
  std::vector<memory::Ledger::ChargeId> charges_;  // less those of the slots and chains
  Mutex mutex_;
  std::shared_ptr<processing::ChainState> chains_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::scan
