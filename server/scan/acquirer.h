#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"
#include "server/scan/block_ring.h"
#include "server/scan/scan_progress.h"
#include "server/source/source.h"

namespace octavo::scan {

/// Takes records from a source and puts them into a ring of blocks: the body of the acquisition
/// thread, and what the others ask of the source meanwhile. A source that lends its memory is asked
/// for loans instead, and nothing is copied.
class Acquirer {
 public:
  /// `progress` counts what is dropped and must outlive this.
  Acquirer(std::unique_ptr<source::Source> source, const model::ResolvedScan& scan,
           ScanProgress* progress);

  /// The ring and its page-locked memory, or that of the source. Before Run.
  absl::Status Allocate(Device& device);
  /// Until the source ends, everything is acquired, or one of the tokens stops it; then the ring is
  /// closed, with why. Acquisition thread. A wait of the source ends with `stop` alone.
  void Run(const std::stop_token& stop, const std::stop_token& aborted);

  // -- compute thread
  BlockRing& ring() { return *ring_; }
  /// Where a part of the ring lies.
  const uint8_t* DataOf(const BlockRing::Part& part) const;
  source::Source& source() { return *source_; }

  // -- retire thread
  /// The device has passed the last use of a part: a slot (>= 0), a loan (> 0).
  void Release(int slot, int64_t loan);

  // -- any thread
  /// Whether the source waits without loss while the ring is full.
  bool can_wait() const { return can_wait_; }
  /// Share of the ring, or of the memory that the source lends, that is in use.
  double Occupancy();
  /// All records of a counted scan were taken.
  bool all_acquired() const { return all_acquired_; }
  model::SourceCounts Counts();
  const std::shared_ptr<source::PushPort>& push() const { return push_; }
  const std::shared_ptr<source::RingPort>& ring_port() const { return ring_port_; }
  /// Of the records that are placed: raw ones of which each is the mean, and bytes of those.
  int64_t record_average() const { return record_average_; }
  int64_t record_bytes() const { return record_bytes_; }

  // -- when the device is through with all
  void FreeMemory();
  /// The source goes, with its files, cameras and tables; its ports stay.
  void LetGo();

 private:
  void RunCopying(const std::stop_token& stop, const std::stop_token& aborted);
  void RunLent(const std::stop_token& stop, const std::stop_token& aborted);

  // Of the scan's own threads; let go of at the end. Others ask Counts and the ports.
  std::unique_ptr<source::Source> source_;
  const std::shared_ptr<source::PushPort> push_;  // the source's, if it has one
  const std::shared_ptr<source::RingPort> ring_port_;
  ScanProgress* const progress_;
  const bool can_wait_;
  // Of the records that are placed: means of record_average_ of the source's.
  const int64_t record_average_, record_bytes_, block_records_, upload_records_, volume_records_;
  const int64_t wanted_records_;  // of a counted scan; 0 = until stopped
  const model::Overrun overrun_;
  const int64_t ring_blocks_, lent_slots_;

  std::vector<PinnedBuffer> memory_;  // of the slots
  std::unique_ptr<BlockRing> ring_;
  source::ZeroCopySource* lender_ = nullptr;  // the source's, if it lends its memory to the uploads
  std::atomic<bool> all_acquired_{false};

  Mutex source_mutex_;
  bool source_gone_ ABSL_GUARDED_BY(source_mutex_) = false;
  model::SourceCounts last_counts_ ABSL_GUARDED_BY(source_mutex_);  // of a source that is gone
};

}  // namespace octavo::scan
