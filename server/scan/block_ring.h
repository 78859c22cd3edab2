#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "server/source/source.h"

namespace octavo::scan {

/// Coalescing: the ring holds a partly filled slot back until it contains one upload's worth of
/// records.
struct GatherRule {
  int64_t enough_records = 1;            // this many records are passed on at once
  std::chrono::nanoseconds patience{0};  // the longest time that a part is held back
};

/// Slots of page-locked memory on their way from the acquisition thread (Acquire, Publish) to the
/// compute thread (Pop) and back from the retire thread (Release). Order is kept. A slot may be
/// filled and taken in consecutive parts, so small blocks are coalesced while the device is busy.
/// The ring allocates only during construction, with one exception: parts of slots that queue up
/// with gaps between them.
class BlockRing {
 public:
  /// slots >= 1, numbered from 0, all free.
  explicit BlockRing(int slots, GatherRule gather = {});

  /// A free slot, or -1.
  int TryAcquire();
  /// Waits for a free slot; -1 on stop.
  int Acquire(std::stop_token stop);
  /// The caller has filled the acquired `slot`.
  void Publish(int slot, const source::SourceBlock& block);
  /// Publishes `block`, which starts at record `offset` of the acquired `slot`, behind the parts of
  /// the slot published before. It joins the previous part if it follows that part in the scan and
  /// the compute thread has not taken that part yet.
  void PublishPart(int slot, int64_t offset, const source::SourceBlock& block);
  /// The caller will publish no further part of `slot`. If it published none, the slot is free
  /// again.
  void Seal(int slot);
  /// Publishes `block`, which occupies `bytes` bytes at `data` in the source's own memory. It joins
  /// the part published last if it follows that part in memory and in the scan, the compute thread
  /// has not taken that part yet, and both together have at most gather.enough_records records.
  /// `last`: the ring must not hold this part back for later ones.
  void PublishLent(const uint8_t* data, int64_t bytes, int64_t loan,
                   const source::SourceBlock& block, bool last);
  /// The source has ended. `status`: OK, or the error that ended it.
  void Close(absl::Status status);

  struct Part {
    int slot = -1;       // -1: lent
    int64_t offset = 0;  // records into the slot
    source::SourceBlock block;
    const uint8_t* lent = nullptr;  // address in the source's own memory
    int64_t lent_bytes = 0, loan = 0;
  };
  /// Waits for the next part. Holds a part back for more records while the device has two other
  /// parts to process, the part is below gather.enough_records, more records may follow, and
  /// gather.patience has not run out. False when the ring is closed and empty, or on stop.
  bool Pop(Part* part, std::stop_token stop);
  /// The device has passed the last use of a part of the slot (or the slot was never filled).
  void Release(int slot);
  /// The same for a lent part.
  void ReleaseLent();

  /// Why the source ended; OK while it runs.
  absl::Status close_status();
  /// Share of slots in use, 0 ... 1.
  double Occupancy();

 private:
  using Clock = std::chrono::steady_clock;
  struct Full {
    Part part;
    Clock::time_point since;
    bool last = false;  // of a lent part: no later part joins it
  };
  struct Slot {
    int parts = 0;  // published and not released
    bool sealed = false;
  };
  void PublishLocked(int slot, int64_t offset, const source::SourceBlock& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(const Part& part, bool last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeIfDone(int slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// How much longer Pop should hold the first part back; 0 = not at all.
  std::chrono::nanoseconds StillToWait() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GatherRule gather_;
  Mutex mutex_;
  CondVar cv_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> free_ ABSL_GUARDED_BY(mutex_);
  std::vector<Full> full_ ABSL_GUARDED_BY(mutex_);  // a circle
  size_t first_full_ ABSL_GUARDED_BY(mutex_) = 0, full_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;  // parts that the device uses
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::scan
