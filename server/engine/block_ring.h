#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "server/engine/source.h"

namespace octavo::engine {

/// Slots of page-locked memory on their way from the acquisition thread (Acquire, Publish) to the compute thread (Pop) and
/// back from the retire thread (Release). Order is kept. Nothing is allocated after construction.
class BlockRing {
 public:
  /// slots >= 1, numbered from 0, all free.
  explicit BlockRing(int slots);

  /// A free slot, or -1.
  int TryAcquire();
  /// Waits for a free slot; -1 on stop.
  int Acquire(std::stop_token stop);
  /// `slot` was acquired and is full now; each slot at most once until it is released.
  void Publish(int slot, const SourceBlock& block);
  /// The source has ended, with OK or why.
  void Close(absl::Status status);

  /// Waits for the next block. False when closed and empty, or on stop.
  bool Pop(int* slot, SourceBlock* block, std::stop_token stop);
  /// The device has passed the last use of the slot (or it was never filled).
  void Release(int slot);

  /// Why the source ended; OK while it runs.
  absl::Status close_status();
  /// Share of slots in use, 0 ... 1.
  double Occupancy();

 private:
  struct Full {
    int slot;
    SourceBlock block;
  };
  const int slots_;
  Mutex mutex_;
  CondVar cv_;
  std::vector<int> free_ ABSL_GUARDED_BY(mutex_);
  std::vector<Full> full_ ABSL_GUARDED_BY(mutex_);  // [slots_], a circle
  size_t first_full_ ABSL_GUARDED_BY(mutex_) = 0, full_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::engine
