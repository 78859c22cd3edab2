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

/// What a scan is asked to do: the request as it is told to clients, and another processing on its
/// way from a client to the compute thread, which takes it over between two volumes. Thread-safe.
class ProcessingUpdates {
 public:
  ProcessingUpdates(std::string name, const model::ResolvedScan& scan, memory::Ledger* ledger,
                    const std::vector<ScanDevice>& devices);

  /// Makes and charges processors for `updated`; it takes the place of one that was not taken yet.
  /// FailedPrecondition (SCAN_STATE) after Close.
  absl::Status Offer(const model::ResolvedScan& updated);
  struct Update {
    model::ResolvedScan scan;
    std::vector<std::shared_ptr<SpectralProcessor>> processors;  // one a lane; their charges end
                                                                 // with them
  };
  /// Whether there was one.
  bool Take(Update* update);

  /// The scan as it was asked for last.
  model::ResolvedScan Latest();
  /// The plan of the scan in words; `chain`: the processor's.
  void Describe(const std::string& chain);
  /// Sets name, devices, request and plan.
  void AddTo(model::ScanStatus* status);
  /// What the request takes of host memory, about.
  int64_t ListedBytes();

  /// No update is taken any more.
  void Close();
  /// The tables of the last request go; the request stays.
  void LetGo();

 private:
  absl::StatusOr<std::shared_ptr<SpectralProcessor>> Make(const model::ResolvedScan& scan,
                                                          const ScanDevice& device);

  const std::string name_;
  memory::Ledger* const ledger_;
  const std::vector<ScanDevice> devices_;
  Mutex mutex_;
  model::ResolvedScan latest_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<SpectralProcessor>> next_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  model::ScanStatus told_ ABSL_GUARDED_BY(mutex_);  // of it only what AddTo copies
};

}  // namespace octavo::scan
