#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"

namespace octavo::memory {

/// Page-locked host memory for results on their way out, recycled by size class under a byte cap.
/// Blocks return when the last reference to them ends. Thread-safe. Held by shared_ptr: blocks may
/// outlive their user.
class FramePool : public std::enable_shared_from_this<FramePool> {
 public:
  /// kClasses: few sizes, so that blocks fit many uses; kExact: for volumes, whose blocks must not
  /// be larger than asked.
  enum class Sizes { kClasses, kExact };
  FramePool(Device* device, int64_t cap_bytes, Sizes sizes = Sizes::kClasses)
      : device_(device), cap_bytes_(cap_bytes), sizes_(sizes) {}

  /// Clients decide how long they keep memory: frames that they view, pieces of a read that they do
  /// not fetch, the beginning of a write that they do not continue. Together these never use the
  /// last quarter of the cap, and reads and writes use no more than half of it. So clients cannot
  /// block the server's own short uses (commits, moves between tiers), and clients that stop
  /// reading cannot block viewers.
  enum class Use { kStaging, kFrame, kClient };
  /// Memory of at least `bytes`, never null. ResourceExhausted with NO_STAGING if the share of
  /// `use` or the cap leaves no room; `retryable` if room comes when other blocks return. Otherwise
  /// the error of Device::AllocatePinned: ResourceExhausted with OUT_OF_MEMORY, which is retryable,
  /// or Unavailable of a lost device. The first use of a size class allocates, which takes
  /// milliseconds in which a driver serves nobody: call Prepare beforehand for the block path. A
  /// short use (kStaging) takes a free block of up to four times the size before it allocates.
  absl::StatusOr<std::shared_ptr<void>> Get(int64_t bytes, Use use = Use::kStaging);
  /// Makes sure that `count` blocks for frames of `bytes` exist, as far as the cap allows.
  void Prepare(int64_t bytes, int count);
  /// Makes what the first uses of volumes of this size take: the slabs of a commit or of a move
  /// between tiers, and the pieces of reads; about half of the cap at most. It takes nothing from
  /// others, and evicts nothing. Without it, the first commit and the first read beside a scan hold
  /// up the driver while blocks of the scan come, and some of these are dropped.
  void PrepareForVolumes(int64_t volume_bytes);
  /// The share of the cap that a block for `bytes` takes.
  static int64_t BlockBytes(int64_t bytes);
  /// The most bytes that blocks of this use may have together.
  int64_t ShareOf(Use use) const;

 private:
  int64_t ClassOf(int64_t bytes) const;
  /// Whether the use may take this many more bytes.
  bool MayTake(int64_t bytes, Use use) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NoRoom(int64_t bytes, Use use) const;
  /// A free block for this use; null if none fits.
  std::unique_ptr<PinnedBuffer> TakeFree(int64_t size, Use use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(int64_t bytes, Use use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::unique_ptr<PinnedBuffer>> Allocate(int64_t bytes);
  /// Makes blocks of a class until `count` are free, as far as the cap allows without evicting any.
  void AddFree(int64_t size, int64_t count);
  void Return(PinnedBuffer* block, Use use);

  Device* const device_;
  const int64_t cap_bytes_;
  const Sizes sizes_;
  Mutex mutex_;
  int64_t allocated_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t frames_ ABSL_GUARDED_BY(mutex_) = 0;  // the part that frames hold now
  int64_t client_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of it that client reads and writes hold
  std::map<int64_t, std::vector<std::unique_ptr<PinnedBuffer>>> free_ ABSL_GUARDED_BY(mutex_);
};

/// Lends blocks of a pool to one user that takes many: together at most a quarter of the share of
/// `use`, so that others find room beside it, but always three: two that take turns and one for
/// what belongs to them, without which nobody gets on. Errors as Get, and ResourceExhausted
/// (NO_STAGING) beyond the quarter.
class PartOfPool {
 public:
  PartOfPool(std::shared_ptr<FramePool> pool, FramePool::Use use);
  absl::StatusOr<std::shared_ptr<void>> Lend(int64_t bytes) const;
  /// The quarter, bytes.
  int64_t most() const { return pool_->ShareOf(use_) / 4; }

 private:
  struct Lent;
  const std::shared_ptr<FramePool> pool_;
  const FramePool::Use use_;
  const std::shared_ptr<Lent> lent_;
};

}  // namespace octavo::memory
