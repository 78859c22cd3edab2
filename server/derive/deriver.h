#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/motion_contrast.h"
#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/base/request_ids.h"
#include "server/base/worker_pool.h"
#include "server/memory/device_set.h"
#include "server/memory/ledger.h"
#include "server/model/scan_spec.h"
#include "server/model/volume_operation.h"
#include "server/pattern/cartesian.h"
#include "server/processing/chain_state.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::derive {

struct AngiographyOperation {
  MotionContrast method = MotionContrast::kAmplitudeDecorrelation;
};
enum class DopplerBetween : uint8_t { kDefault = 0, kRepeats = 1, kAscans = 2 };
struct DopplerOperation {
  DopplerBetween between = DopplerBetween::kDefault;
  int64_t half_window = 0;
};
struct ReprocessOperation {  // of raw spectra; first
  model::Processing processing;
};
using Operation = std::variant<pattern::CartesianGrid, AngiographyOperation, DopplerOperation,
                               ReprocessOperation, model::OpSpec>;

/// A client's request to derive a new volume.
struct DeriveSpec {
  std::string name;  // of the source
  std::vector<Operation> operations;
  std::string request_id;
  std::string
      request_digest;  // of the request body: tells a retry from another request with the same id
  bool asynchronous = false;  // `done` is called once the work is planned and has its memory; the
                              // volume is ACQUIRING then
  std::string chain;          // the scan's chain, if this is one
  std::shared_ptr<processing::ChainState>
      memory;  // granted with the scan for the chain; null: none, or the scan has ended
};

/// Makes new held volumes from held ones. Thread-safe; the worker pool does the work.
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

  /// Errors known at once are returned, and `done` is not called; otherwise a worker calls `done`
  /// once. Memory for the result and for intermediate arrays is reserved before anything starts,
  /// all or nothing, unless it was granted to the scan.
  absl::Status Derive(const DeriveSpec& spec,
                      std::function<void(absl::StatusOr<model::VolumeStatus>)> done);
  int64_t Pending();

 private:
  struct Step;
  struct Work;
  absl::StatusOr<std::shared_ptr<Work>> Plan(const DeriveSpec& spec);
  absl::StatusOr<model::VolumeStatus> Run(
      Work& work, const std::function<void(const model::VolumeStatus&)>& planned);
  absl::Status Compute(Work& work, Device& device, model::VolumeStatus* result);
  void Remember(const DeriveSpec& spec, const std::string& name);
  void Finish(const DeriveSpec& spec, const absl::StatusOr<model::VolumeStatus>& result);

  const Context context_;
  Mutex mutex_;
  int64_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
  base::RequestIds requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::derive
