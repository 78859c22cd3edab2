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

/// The body of the acquisition thread: takes records from a source and puts them into a ring of
/// blocks. It also serves the other threads' calls to the source. If the source lends its memory,
/// the acquirer asks it for loans and copies nothing.
class Acquirer {
 public:
  /// `progress` counts dropped records and must outlive this object.
  Acquirer(std::unique_ptr<source::Source> source, const model::ResolvedScan& scan,
           ScanProgress* progress);

  /// Allocates the ring and its page-locked memory, or prepares the source's own memory. Call
  /// before Run.
  absl::Status Allocate(Device& device);
  /// Runs until the source ends, all records are acquired, or one of the tokens stops it. Then
  /// closes the ring with the reason. Acquisition thread. Only `stop` ends a wait inside the
  /// source.
  void Run(const std::stop_token& stop, const std::stop_token& aborted);

  // -- compute thread
  BlockRing& ring() { return *ring_; }
  /// Address of a part's records.
  const uint8_t* DataOf(const BlockRing::Part& part) const;
  source::Source& source() { return *source_; }

  // -- retire thread
  /// The device has passed the last use of a part: returns its slot (>= 0) or its loan (> 0).
  void Release(int slot, int64_t loan);

  // -- any thread
  /// Whether the source waits without loss while the ring is full.
  bool can_wait() const { return can_wait_; }
  /// Share of the ring, or of the memory that the source lends, that is in use.
  double Occupancy();
  /// True once all records of a counted scan are acquired.
  bool all_acquired() const { return all_acquired_; }
  model::SourceCounts Counts();
  const std::shared_ptr<source::PushPort>& push() const { return push_; }
  const std::shared_ptr<source::RingPort>& ring_port() const { return ring_port_; }
  /// For the records that are placed: how many raw records each one averages, and its bytes.
  int64_t record_average() const { return record_average_; }
  int64_t record_bytes() const { return record_bytes_; }

  // after the device has finished all work
  void FreeMemory();
  /// Destroys the source with its files, cameras and tables; its ports stay.
  void LetGo();

 private:
  void RunCopying(const std::stop_token& stop, const std::stop_token& aborted);
  void RunLent(const std::stop_token& stop, const std::stop_token& aborted);

  // Only the scan's own threads use it; released at the end. Other threads call Counts and the
  // ports.
  std::unique_ptr<source::Source> source_;
  const std::shared_ptr<source::PushPort> push_;  // the source's, if it has one
  const std::shared_ptr<source::RingPort> ring_port_;
  ScanProgress* const progress_;
  const bool can_wait_;
  // For the records that are placed; each averages record_average_ records of the source.
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
  model::SourceCounts last_counts_ ABSL_GUARDED_BY(source_mutex_);  // of a destroyed source
};

}  // namespace octavo::scan
