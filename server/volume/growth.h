#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/storage/commit/commit_store.h"
#include "server/volume/volume_commit.h"

namespace octavo::volume {

/// How far a volume that is being made has come: what the thread that makes it tells the thread
/// that writes it. Each of them ends its part once, in any order; the second one ends the commit in
/// the store. Thread-safe.
class Growth {
 public:
  using Outcome = absl::StatusOr<storage::CommitOutcome>;

  // -- the maker
  /// The first `bytes` are there once `done` has passed.
  void Reach(int64_t bytes, Event done);
  /// The volume is held, and its commit has begun in the store: the writer takes `commit` over and
  /// ends it. If the writer has ended already, `commit` stays the caller's, and its outcome is
  /// returned.
  std::optional<Outcome> Seal(VolumeCommit& commit);
  /// The volume is not to be had; `why` ends the commit. Nothing after Seal.
  void Fail(const absl::Status& why);

  // -- the writer
  /// Whether the first `bytes` are there. Does not wait.
  bool Has(int64_t bytes);
  /// Waits for the first `bytes`. The error of Fail or of the device; OK, too, when `unwanted` is
  /// true after a Wake.
  absl::Status AwaitBytes(int64_t bytes, const std::function<bool()>& unwanted);
  /// Waits until the volume is held. Likewise.
  absl::Status AwaitSeal(const std::function<bool()>& unwanted);
  /// The writer has ended, with this outcome. The commit in the store that it has to end; none if
  /// the volume is not held yet.
  VolumeCommit Close(const Outcome& outcome);

  /// `unwanted` may be true now. Any thread.
  void Wake();

 private:
  /// A part of the volume that the maker has told of.
  struct Mark {
    int64_t bytes = 0;
    Event done;
  };
  /// The first mark that covers `bytes`, without those before it; null: not there yet.
  Mark* Covering(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<Mark> marks_ ABSL_GUARDED_BY(mutex_);  // those the writer may still need, ascending
  int64_t passed_ ABSL_GUARDED_BY(mutex_) = 0;      // bytes whose mark was waited for
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);     // why there will be no volume
  bool sealed_ ABSL_GUARDED_BY(mutex_) = false;     // the volume is held
  VolumeCommit commit_ ABSL_GUARDED_BY(mutex_);     // once it is sealed, until the writer ends
  std::optional<Outcome> outcome_ ABSL_GUARDED_BY(mutex_);  // of a writer that has ended
};

}  // namespace octavo::volume
