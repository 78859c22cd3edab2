#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "server/source/source.h"

namespace octavo::scan {

/// How small blocks are gathered: what has come of a slot waits until there is enough of it for one
/// upload.
struct GatherRule {
  int64_t enough_records = 1;            // so many need not wait for more
  std::chrono::nanoseconds patience{0};  // nothing waits longer than this
};

/// Slots of page-locked memory on their way from the acquisition thread (Acquire, Publish) to the
/// compute thread (Pop) and back from the retire thread (Release). Order is kept. A slot may be
/// filled and taken in parts, one behind the other: small blocks of a source are gathered while the
/// device has enough to do. Nothing is allocated after construction, but where parts of slots pile
/// up with gaps between them.
class BlockRing {
 public:
  /// slots >= 1, numbered from 0, all free.
  explicit BlockRing(int slots, GatherRule gather = {});

  /// A free slot, or -1.
  int TryAcquire();
  /// Waits for a free slot; -1 on stop.
  int Acquire(std::stop_token stop);
  /// `slot` was acquired and is full now.
  void Publish(int slot, const source::SourceBlock& block);
  /// `block` lies in the acquired `slot` from its record `offset` on, behind what was published of
  /// it before, which it joins if it follows on in the scan and that was not taken yet.
  void PublishPart(int slot, int64_t offset, const source::SourceBlock& block);
  /// No further part of `slot` will be published; it is free again if there was none.
  void Seal(int slot);
  /// `block` lies in memory of the source's own, `bytes` of it at `data`. It joins what was
  /// published last if it follows on from that in memory and in the scan, that was not taken yet,
  /// and both are no more than gather.enough_records. `last`: nothing that comes later is worth
  /// waiting for.
  void PublishLent(const uint8_t* data, int64_t bytes, int64_t loan,
                   const source::SourceBlock& block, bool last);
  /// The source has ended, with OK or why.
  void Close(absl::Status status);

  struct Part {
    int slot = -1;       // -1: lent
    int64_t offset = 0;  // records into the slot
    source::SourceBlock block;
    const uint8_t* lent = nullptr;  // memory of the source's own
    int64_t lent_bytes = 0, loan = 0;
  };
  /// Waits for the next part, and for more of it while the device has two others to do, there is
  /// not enough, more may come, and patience lasts. False when closed and empty, or on stop.
  bool Pop(Part* part, std::stop_token stop);
  /// The device has passed the last use of a part of the slot (or the slot was never filled).
  void Release(int slot);
  /// The same of a part that was lent.
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
    bool last = false;  // of a lent one: nothing joins it
  };
  struct Slot {
    int parts = 0;  // published and not released
    bool sealed = false;
  };
  void PublishLocked(int slot, int64_t offset, const source::SourceBlock& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(const Part& part, bool last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeIfDone(int slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// How long the first part should wait for more of it; 0 = not at all.
  std::chrono::nanoseconds StillToWait() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GatherRule gather_;
  Mutex mutex_;
  CondVar cv_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> free_ ABSL_GUARDED_BY(mutex_);
  std::vector<Full> full_ ABSL_GUARDED_BY(mutex_);  // a circle
  size_t first_full_ ABSL_GUARDED_BY(mutex_) = 0, full_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;  // parts with the device
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::scan
