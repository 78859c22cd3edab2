#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/base/worker_pool.h"
#include "server/memory/ledger.h"
#include "server/memory/volume_slot.h"
#include "server/model/resolved_scan.h"

namespace octavo::processing {

/// Device memory for the results of a scan's chains (ScanSpec.chains), granted and allocated with
/// the scan: as many results of every chain as the scan has volume slots, and the workspace of one
/// chain at a time. After the end of the scan, results keep their slots until they are discarded or
/// committed. Thread-safe.
class ChainState {
 public:
  /// Its needs on `device`, in the order of the charges for Create; empty without chains. `slots`:
  /// scan::VolumeSlots.
  static std::vector<model::AdmissionReport::Item> Needs(const model::ResolvedScan& scan,
                                                         Device& device, int64_t slots);
  /// Allocates. Null without chains. On failure, and until Begin, the charges belong to the caller.
  static absl::StatusOr<std::shared_ptr<ChainState>> Create(
      const model::ResolvedScan& scan, Device& device, int64_t slots, memory::Ledger* ledger,
      std::vector<memory::Ledger::ChargeId> charges);
  /// From here on the charges end with this object and with the results.
  void Begin();
  ~ChainState();

  /// A free slot for a result of `chain`; null if all are taken.
  std::shared_ptr<memory::VolumeSlot> TryTake(const std::string& chain);
  /// Runs `task` on `workers`; tasks of this object run in order, one at a time.
  void Post(base::WorkerPool* workers, const std::shared_ptr<ChainState>& self,
            std::function<void()> task);

 private:
  ChainState() = default;

  memory::Ledger* ledger_ = nullptr;
  bool begun_ = false;
  std::map<std::string, std::vector<std::unique_ptr<memory::VolumeSlot>>> made_;  // until Begin
  std::map<std::string, std::shared_ptr<memory::SlotPool>> pools_;
  memory::Ledger::ChargeId scratch_ = 0;
  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::processing
