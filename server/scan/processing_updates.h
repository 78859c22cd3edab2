#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/spectral/spectral.h"
#include "server/memory/ledger.h"
#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"
#include "server/scan/scan_memory.h"

namespace octavo::scan {

/// The scan's request as clients see it, and pending changes of the processing. A client offers a
/// change; the compute thread takes it over between two volumes. Thread-safe.
class ProcessingUpdates {
 public:
  ProcessingUpdates(std::string name, const model::ResolvedScan& scan, memory::Ledger* ledger,
                    const std::vector<ScanDevice>& devices);

  /// Makes and charges processors for `updated`. They replace an earlier offer that the compute
  /// thread has not taken yet. FailedPrecondition (SCAN_STATE) after Close.
  absl::Status Offer(const model::ResolvedScan& updated);
  struct Update {
    model::ResolvedScan scan;
    std::vector<std::shared_ptr<SpectralProcessor>> processors;  // per lane; each owns its charge
  };
  /// Takes the pending update. False if there is none.
  bool Take(Update* update);

  /// The latest request for the scan.
  model::ResolvedScan Latest();
  /// Writes the plan of the scan in words; `chain`: the processor's description.
  void Describe(const std::string& chain);
  /// Sets name, devices, request and plan.
  void AddTo(model::ScanStatus* status);
  /// Approximate host memory of the request.
  int64_t ListedBytes();

  /// Rejects all later updates.
  void Close();
  /// Releases the tables of the last request; the request itself stays.
  void LetGo();

 private:
  absl::StatusOr<std::shared_ptr<SpectralProcessor>> Make(const model::ResolvedScan& scan,
                                                          const ScanDevice& device);

  const std::string name_;
  const security::Owner owner_;
  memory::Ledger* const ledger_;
  const std::vector<ScanDevice> devices_;
  Mutex mutex_;
  model::ResolvedScan latest_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<SpectralProcessor>> next_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  model::ScanStatus told_ ABSL_GUARDED_BY(mutex_);  // only the fields that AddTo copies
};

}  // namespace octavo::scan
