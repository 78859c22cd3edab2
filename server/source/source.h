#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/device/device.h"
#include "gpu/device/dtype.h"
#include "server/model/scan_spec.h"
#include "server/model/source_traits.h"
#include "server/model/status_types.h"

namespace octavo::source {

/// The records that a source delivered into a slot.
struct SourceBlock {
  int64_t first_record =
      0;  // counted from the start of the scan; a jump means records were lost before it
  int64_t records = 0;  // 0 = the source has ended
  TimePoint acquired;   // when its last record arrived
};

/// An external event at a record.
struct SourceMark {
  std::string name;
  int64_t record = 0;  // counted from the start of the scan
};

class PushPort;  // push_records.h
class RingPort;  // ring_port.h

/// Records that lie in page-locked memory of their source.
struct BorrowedBlock {
  SourceBlock block;  // records 0 = the source has ended
  const uint8_t* data = nullptr;
  int64_t loan = 0;  // counts up from 1
};

/// Page-locked memory of a source that the upload reads in place: these records are never copied on
/// the host.
class ZeroCopySource {
 public:
  virtual ~ZeroCopySource() = default;
  /// Most loans that are out at once, >= 1. Fixed from the start.
  virtual int64_t slots() const = 0;
  /// Makes the memory and page-locks it for `device`, which must outlive it. Before the first
  /// record; takes milliseconds.
  virtual absl::Status OpenMemory(Device& device) = 0;
  /// The next records, at most acquisition.records_per_block; waits for them until `stop`. A stop
  /// returns 0 records. They stay unchanged until they are returned, unless the external owner
  /// misbehaves. Called by the acquisition thread.
  virtual absl::StatusOr<BorrowedBlock> Lend(std::stop_token stop) = 0;
  /// Returns all loans up to and including this one: the device has passed their last use. Any
  /// thread; loans in order.
  virtual void Return(int64_t loan) = 0;
  /// Share of the memory that is in use, 0 ... 1. Any thread.
  virtual double Occupancy() = 0;
  /// No loans are outstanding and none will be made; the memory may be freed.
  virtual void CloseMemory() = 0;
};

/// A source of raw records. Used by one thread (the scan's acquisition thread).
class Source {
 public:
  virtual ~Source() = default;
  /// Fills `slot` ([max_records, S, channels] of raw_type, or packed) with the next records; waits
  /// for them until `stop`. A stop returns what there is (perhaps 0 records).
  virtual absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records,
                                           std::stop_token stop) = 0;
  /// Skips the next `records` records (no slot was free): waits until their time has passed. Only
  /// if !CanWait().
  virtual absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token stop) = 0;
  /// Whether the source can wait without loss while no slot is free (files, simulation as fast as
  /// possible).
  virtual bool CanWait() const = 0;

  /// Call before the first record. `total_records`: number of records that the scan wants; 0 =
  /// until stopped.
  virtual void Want(int64_t total_records) { (void)total_records; }
  /// Call before the first record. The source calls `tell` when something changes at it ("a client
  /// connected"), from any thread, until Close.
  virtual void OnNews(std::function<void(const std::string&)> tell) { (void)tell; }

  // -- any thread
  virtual model::SourceCounts Counts() { return {}; }
  /// Removes and returns the markers that came with records before `record`, in the order they
  /// came.
  virtual std::vector<SourceMark> TakeMarks(int64_t record) {
    (void)record;
    return {};
  }
  /// The scan takes no more records. The source tells the clients or the process that feed it.
  virtual void Close() {}
  /// The port to which clients push records; null for sources that fetch them.
  virtual std::shared_ptr<PushPort> push() { return nullptr; }
  /// The ring that a process on this host fills; null for other sources.
  virtual std::shared_ptr<RingPort> ring() { return nullptr; }
  /// Memory that the source lends instead of filling slots; null: it fills slots. One that lends
  /// can fill slots too (Next).
  virtual ZeroCopySource* lender() { return nullptr; }
};

/// InvalidArgument: the request names no source; the message lists those that there are.
absl::Status NoSource();

/// Page-locked bytes that the source of this request lends (Source::lender); 0 if it lends none.
/// `resolved`: the request as OpenSource gets it.
int64_t LentBytes(const model::ScanSpec& resolved);

/// Checks source parameters and opens files; reads no records. InvalidArgument names the field
/// ("simulated.bandwidth_nm", "replay.path"); NotFound, PermissionDenied for files; paths are
/// confined to `replay_roots`. Replay: .npy (u1, u2, i2, f4, C order, last axis = samples) or raw
/// (needs acquisition.samples_per_record and raw_type; a size that is not a whole number of records
/// is refused).
absl::StatusOr<model::SourceTraits> InspectSource(const model::ScanSpec& spec,
                                                  const std::vector<std::string>& replay_roots);

/// Opens the source of a resolved spec (resolve_scan.h). `clock` must outlive it.
absl::StatusOr<std::unique_ptr<Source>> OpenSource(const model::ScanSpec& resolved,
                                                   const std::vector<std::string>& replay_roots,
                                                   const Clock* clock);

}  // namespace octavo::source
