#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "server/base/worker_pool.h"
#include "server/derive/derivation_plan.h"
#include "server/derive/derive_spec.h"
#include "server/memory/device_set.h"
#include "server/memory/ledger.h"
#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/model/work_progress.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_hold.h"
#include "server/volume/volume_store.h"

namespace octavo::derive {

/// Makes new held volumes from held ones: holds the source, lets the work be planned
/// (derivation_plan.h), reserves the memory, lists the new volume, lets it be computed
/// (derivation_run.h), and seals it. Thread-safe; the worker pool does the work.
class Deriver {
 public:
  struct Context {
    memory::DeviceSet devices;
    memory::Ledger* ledger = nullptr;
    volume::VolumeStore* volumes = nullptr;
    const Clock* clock = nullptr;
    base::WorkerPool* workers = nullptr;
    std::string server_id;
    volume::Spiller* spiller = nullptr;  // brings sources back to their device
  };
  explicit Deriver(Context context) : context_(std::move(context)) {}

  using Planned = std::function<void(const model::VolumeStatus&)>;
  using Done = std::function<void(absl::StatusOr<model::VolumeStatus>)>;
  /// A worker calls `planned` (may be null) when the work is planned and has its memory, and the
  /// new volume is listed as ACQUIRING; then it calls `done`, once. What is wrong with the request
  /// is the error of a `done` without `planned`. Memory for the result and for intermediate arrays
  /// is reserved before anything starts, all or nothing, unless it was granted to the scan. A stop
  /// that is requested through `control` ends the work (CANCELLED), and the new volume fails.
  void Derive(const DeriveSpec& spec, model::WorkControl control, Planned planned, Done done);
  int64_t Pending() const { return pending_; }

 private:
  /// A hold of the volume on its device; restores it first if it was spilled.
  absl::StatusOr<volume::VolumeHold> HoldSource(const std::string& name);
  /// Everything from the name of the source to the new volume. `planned` is called when the new
  /// volume is listed and has its memory.
  absl::StatusOr<model::VolumeStatus> Make(const DeriveSpec& spec,
                                           const model::WorkControl& control,
                                           const Planned& planned);
  /// Takes over the first of the charges; the others are for the work itself.
  absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> MakeSlot(
      Device& device, int64_t bytes, std::vector<memory::Ledger::ChargeId>* charges);
  /// Lists the new volume, computes it, and seals it; or it fails.
  absl::Status Fill(const DerivationPlan& plan, const volume::VolumeHold& source,
                    std::shared_ptr<memory::VolumeSlot> slot, model::VolumeStatus result,
                    const model::WorkControl& control, const Planned& planned);

  const Context context_;
  std::atomic<int64_t> pending_{0};
};

}  // namespace octavo::derive
