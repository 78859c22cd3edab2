#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/buffer/buffer_entry.h"
#include "server/buffer/buffer_totals.h"
#include "server/buffer/tombstones.h"
#include "server/model/buffer_types.h"
#include "server/session/lease.h"

namespace octavo::buffer {

/// All buffers under one lock: their names, what clients see of them, the sequence numbers and the
/// counts of the work on them. The verbs of buffers check and act through this table: a verb takes
/// the lock, finds the entry, checks it, enqueues its work, changes the entry, and releases the
/// lock. The table must outlive all work that uses LostUnlessOk.
class BufferTable {
 public:
  BufferTable(std::vector<Device*> devices, session::LeaseTable* leases, const Clock* clock)
      : devices_(std::move(devices)), leases_(leases), clock_(clock) {}

  Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  TimePoint Now() const { return clock_->Now(); }

  // -- entries
  /// NotFound (NO_BUFFER), PermissionDenied (NOT_OWNER), FailedPrecondition (SEALED: a volume).
  absl::StatusOr<BufferPtr> Find(const std::string& name, const model::Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// As above, to change it: PermissionDenied (NOT_OWNER) also if the caller has no right to.
  absl::StatusOr<BufferPtr> FindToChange(const std::string& name, const model::Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// For the server itself, which may see every buffer. Null if there is none of this name.
  BufferPtr Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Whether there was such a buffer, as far as the end of it is remembered.
  bool IsGone(const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_);
  /// By number: oldest first.
  const std::map<uint64_t, BufferPtr>& Buffers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return buffers_;
  }
  /// Whether the caller may see what others say about `name`: not about a private buffer without
  /// its key, also when the buffer is gone. What is no buffer may be seen by everybody.
  bool MaySee(const std::string& name, const model::Caller& caller) ABSL_LOCKS_EXCLUDED(mutex_);
  void Insert(const BufferPtr& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Takes the buffer out of the table and counts it under `reason`; later callers get `text` as
  /// the reason for its end. The caller drops its last reference without the lock, because that
  /// frees memory.
  void Remove(const BufferPtr& buffer, const std::string& reason, const std::string& text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Forgets the buffers that went too long ago.
  void Purge(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { tombstones_.Purge(now_ns); }

  // -- changes and checks of an entry
  /// The entry has changed: counts its revision, and its time to live begins anew.
  void Touch(BufferEntry& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The place of a piece of work in the one order of all work.
  uint64_t NextSequence() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ++sequence_; }
  bool IsHealthy(int device) const { return devices_[static_cast<size_t>(device)]->Health().ok(); }
  /// FailedPrecondition (UNINITIALIZED, PARTIAL), DataLoss (LOST).
  absl::Status CheckReadable(const BufferEntry& buffer, size_t replica,
                             bool allow_uninitialized) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// FailedPrecondition (IMPORTED) for a buffer whose memory a client lends. `field`: that names
  /// it.
  static absl::Status CheckWritable(const BufferEntry& buffer, const std::string& field = "name");
  /// The callback for the end of work on a replica: marks the replica as lost on an error.
  std::function<void(const absl::Status&)> LostUnlessOk(std::shared_ptr<BufferReplica> replica);

  // -- what clients see
  model::BufferStatus StatusOf(const BufferEntry& buffer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<model::BufferStatus> Get(const std::string& name, const model::Caller& caller);
  /// Up to `most` buffers with a greater number than `after`, oldest first, without the private
  /// ones of others.
  std::vector<model::BufferStatus> List(const model::Caller& caller, uint64_t after = 0,
                                        size_t most = std::numeric_limits<size_t>::max());

  // -- counts
  BufferTotals& totals() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return totals_; }
  /// Counts the answer to a client if it is an error.
  void CountRefusal(const absl::Status& answer);
  /// The totals, with those of the buffers that are there now. The quota is left out.
  BufferTotals Count();

 private:
  bool IsCoherent(const BufferEntry& buffer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<Device*> devices_;
  session::LeaseTable* const leases_;
  const Clock* const clock_;
  Mutex mutex_;
  uint64_t inserted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, BufferPtr> buffers_ ABSL_GUARDED_BY(mutex_);  // by number
  std::map<std::string, BufferPtr> by_name_ ABSL_GUARDED_BY(mutex_);
  Tombstones tombstones_ ABSL_GUARDED_BY(mutex_);
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  BufferTotals totals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::buffer
