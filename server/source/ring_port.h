#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/source/attachable_ring.h"
#include "server/source/ring_memory.h"
#include "server/source/source.h"

namespace octavo::source {

/// The scan's requirements for a producer's ring.
struct RingLimits {
  int64_t record_bytes = 0;
  int64_t block_records = 0;  // most records of a slot
  int64_t slots = 0;
  int64_t samples_per_record = 0, channels = 1;
  uint32_t raw_type = 0;       // octavo.v1.RawType, for the producer to compare
  double idle_timeout_s = 60;  // longest wait for records; <= 0 = for ever
  double restart_grace_s =
      60;  // longest wait for another producer after one has ended; <= 0 = the scan ends at once
  bool producer_waits = false;
  bool fail_on_overrun = false;

  int64_t slot_bytes() const { return block_records * record_bytes; }
  int64_t data_offset() const { return RingMemory::DataOffset(slots); }
  int64_t total_bytes() const { return RingMemory::TotalBytes(slots, slot_bytes()); }
};

/// The options of a resolved scan whose source is a ring.
RingLimits LimitsOfRing(const model::ScanSpec& resolved);
/// A line for people about a resolved scan whose source is a ring.
std::string DescribeRing(const model::ScanSpec& resolved);

/// A ring in memory that a producer on this host and the server share: the producer fills slots in
/// order and publishes them, the server lends them to the upload and releases them to the producer.
/// The server does not trust the producer's words: it reads each once, checks it, and uses the
/// copy. It counts and skips invalid blocks, and disconnects a producer whose counters are
/// inconsistent. A faulty producer can neither make the server wait longer than a silent one would,
/// nor read beyond the ring. Records carry their numbers: lost records make gaps, repeated ones are
/// dropped. Thread-safe.
class RingPort final : public AttachableRing {
 public:
  RingPort(const RingLimits& limits, const Clock* clock);
  const RingLimits& limits() const { return limits_; }

  // -- producers' side
  /// FailedPrecondition (RING_TAKEN; SCAN_STATE: the scan takes no more records), ResourceExhausted
  /// (HOST_MEMORY).
  absl::StatusOr<Attachment> Attach(Producer producer) override;
  /// The status that Attach would return now.
  absl::Status CanAttach();
  void Detach(int64_t connection) override;
  int64_t total_bytes() const override { return limits_.total_bytes(); }
  int64_t total_records();

  // -- the source's side
  void Want(int64_t total_records);
  void OnNews(std::function<void(const std::string&)> tell);
  absl::Status OpenMemory(Device& device);
  /// As ZeroCopySource::Lend. DataLoss (SOURCE_OVERRUN), DeadlineExceeded (SOURCE_STALLED),
  /// Unavailable (SOURCE_LOST).
  absl::StatusOr<BorrowedBlock> Lend(std::stop_token stop);
  void Return(int64_t loan);  // do not call while CloseMemory runs
  double Occupancy();
  model::SourceCounts Counts();
  /// The port takes no more records. Do not call while Lend runs.
  void Close();
  void CloseMemory();

 private:
  struct Waiting {
    SourceBlock block;
    int64_t slot = 0, offset = 0;  // records into the slot
    uint64_t end = 0;              // slots published with it
    bool overrun = false;          // records before it were dropped
  };
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Accept(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Break(const std::string& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ended() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(uint64_t until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellProducer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RingServer();
  absl::StatusOr<std::chrono::nanoseconds> MayWait(std::chrono::steady_clock::time_point began)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Detaches a producer that has gone.
  void DetachGone();
  absl::Status TakesMore() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CanAttachLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Attachment> AttachInside(Producer producer);
  void CutIfBroken();
  void Tell(const std::string& news);

  /// The memory of one producer.
  struct Memory {
    RingMemory ring;
    PinnedBuffer locked;  // freed before the mapping
  };
  absl::StatusOr<std::shared_ptr<Memory>> NewMemory(const RingFacts& facts, Device& device);
  /// What the next producer gets instead of `former`, whose slots are read no more if it is `idle`.
  absl::StatusOr<std::shared_ptr<Memory>> Renew(const std::shared_ptr<Memory>& former, bool idle,
                                                const RingFacts& facts, Device& device);
  /// Takes the place of memory_ for the next producer.
  void Swap(std::shared_ptr<Memory> fresh) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Former memory that nobody reads any more, for FreeSlots without the lock.
  std::vector<std::shared_ptr<Memory>> Unread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void FreeSlots(const std::shared_ptr<Memory>& former);

  RingServerPage* server() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return memory_->ring.server();
  }
  RingProducerPage* producer() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return memory_->ring.producer();
  }

  const RingLimits limits_;
  const Clock* const clock_;
  Mutex mutex_;
  CondVar renewed_;
  Device* device_ ABSL_GUARDED_BY(mutex_) = nullptr;        // while the memory is there
  std::shared_ptr<Memory> memory_ ABSL_GUARDED_BY(mutex_);  // of the last producer, or of the next
  // Attach is at work on the memory, without the lock: another one is refused, CloseMemory waits.
  bool renewing_ ABSL_GUARDED_BY(mutex_) = false;
  /// Of former producers, with blocks that are lent: read until this many slots are returned.
  std::vector<std::pair<uint64_t, std::shared_ptr<Memory>>> former_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = false, closed_ ABSL_GUARDED_BY(mutex_) = false,
             running_ ABSL_GUARDED_BY(mutex_) = false;
  // Slots, counted from the beginning: examined; lent; returned; released to the producer.
  uint64_t seen_ ABSL_GUARDED_BY(mutex_) = 0, lent_ ABSL_GUARDED_BY(mutex_) = 0,
                 returned_ ABSL_GUARDED_BY(mutex_) = 0, released_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Waiting> queue_ ABSL_GUARDED_BY(mutex_);  // circular: examined but not lent
  size_t first_ ABSL_GUARDED_BY(mutex_) = 0, count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t total_records_ ABSL_GUARDED_BY(mutex_) = 0, next_record_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t connection_ ABSL_GUARDED_BY(mutex_) = 0;
  bool feeding_ ABSL_GUARDED_BY(mutex_) = false;  // a producer is attached and trusted
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;    // the producer declared its end
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);   // the producer's own error
  std::chrono::steady_clock::time_point gone_ ABSL_GUARDED_BY(mutex_);
  model::SourceCounts counts_ ABSL_GUARDED_BY(mutex_);
  int64_t overruns_before_ ABSL_GUARDED_BY(mutex_) =
      0;  // counts_.overrun_records when the producer attached: a producer counts only its own
  Producer producer_ ABSL_GUARDED_BY(mutex_);  // without `cut`: none, or told already
  std::function<void()> cut_now_ ABSL_GUARDED_BY(mutex_);
  std::string broken_ ABSL_GUARDED_BY(mutex_);  // news not reported yet
  Mutex news_mutex_;  // held while news_ runs, so that Close can promise silence
  std::function<void(const std::string&)> news_ ABSL_GUARDED_BY(news_mutex_);
};

}  // namespace octavo::source
