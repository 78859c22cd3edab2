#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/exports/export_feed.h"
#include "server/model/stats.h"
#include "server/scan/scan_session.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// The scans that clients can see: those that run or wait, and the ended ones that are still
/// listed. It also keeps the summed counts of forgotten scans. Thread-safe; its lock is acquired
/// before the VolumeStore's.
class ScanRegistry final : public exports::ScanLookup {
 public:
  struct Limits {
    int64_t entries = 1000;              // ended scans that stay listed
    int64_t bytes = int64_t{256} << 20;  // host memory for them
  };
  /// `last_number`: of the scans of earlier daemons; those of this one count on.
  ScanRegistry(Limits limits, volume::VolumeStore* volumes, volume::Spiller* spiller,
               uint64_t last_number = 0)
      : limits_(limits), volumes_(volumes), spiller_(spiller), added_(last_number) {}

  /// Lists a scan and forgets old ones if there are too many.
  void Add(const std::shared_ptr<scan::ScanSession>& session);
  /// Removes a scan that did not begin from the list.
  void Remove(const std::string& name);
  /// NotFound (NO_SCAN).
  absl::StatusOr<std::shared_ptr<scan::ScanSession>> Find(const std::string& name);
  std::vector<std::shared_ptr<scan::ScanSession>> All();
  /// The scan's number in the order of submission; 0 if it is not listed.
  uint64_t NumberOf(const std::string& name);
  /// Up to `most` scans with a smaller number than `before`, newest first, with their numbers.
  std::vector<std::pair<uint64_t, std::shared_ptr<scan::ScanSession>>> Newest(uint64_t before,
                                                                              size_t most);
  /// Removes the oldest ended scans without volumes in memory from the list while their number or
  /// their memory exceeds the limits. Their counts are kept in the sums.
  void ForgetOld();
  /// Removes all scans from the list.
  void Clear();

  /// The number of scans listed since the start.
  int64_t admitted() const { return admitted_; }
  /// A submission was refused with this status.
  void CountRejected(const absl::Status& status);
  /// Memory of `device` that admission had granted could not be allocated.
  void CountAllocationFailure(const std::string& device);
  /// Returns the listed scans and, in `stats`, the sums of those no longer listed, both taken at
  /// one moment. Otherwise a scan forgotten while the caller adds could be counted twice, and the
  /// counters would fall at the next call.
  std::vector<std::shared_ptr<scan::ScanSession>> AllAndPast(model::Stats* stats);
  /// Adds the counts of one scan.
  static void AddScan(scan::ScanSession& session, const model::ScanStatus& scan,
                      model::Stats* stats);

  absl::StatusOr<bool> HasEnded(const std::string& scan) override;
  int64_t SpareSlots(const model::VolumeStatus& volume) override;

 private:
  void ForgetOldLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Limits limits_;
  volume::VolumeStore* const volumes_;
  volume::Spiller* const spiller_;
  std::atomic<int64_t> admitted_{0};
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<scan::ScanSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> order_ ABSL_GUARDED_BY(mutex_);  // by number: oldest first
  std::map<std::string, int64_t> rejected_ ABSL_GUARDED_BY(mutex_);
  model::Stats past_ ABSL_GUARDED_BY(mutex_);  // of scans that are no longer listed
};

}  // namespace octavo::engine
