#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/engine/earlier_runs.h"
#include "server/model/status_types.h"
#include "server/storage/history/history_writer.h"
#include "server/volume/volume_observer.h"

namespace octavo::engine {

/// Puts a row into the history for each held volume that stays: after a death of the server, the
/// rows without an end are what was lost.
///
/// Volumes that come and go cost the disk nothing. One that leaves before it has a row gets none:
/// kFreshNs after it is held at the earliest; if many come at once (beyond kBurst, and kPerSecond),
/// kSettledNs after; kRingNs after for one that a LIVE scan may overwrite at any time. At most
/// `most_open` volumes have a row at a time; those beyond are counted (left_out). Whoever changes a
/// volume never waits: the thread of the HistoryRecorder calls Turn. Thread-safe.
class VolumeRecorder final : public volume::VolumeObserver {
 public:
  static constexpr int64_t kFreshNs = 50'000'000, kSettledNs = 1'000'000'000,
                           kRingNs = 5'000'000'000;
  static constexpr double kBurst = 64, kPerSecond = 32;
  static constexpr size_t kMostOpen = 10'000;  // half of what the HistoryWriter lets wait

  /// `writer`: null = there is no history. Volumes that are held again have a row of an earlier
  /// daemon (`earlier`), which goes on.
  VolumeRecorder(storage::HistoryWriter* writer, const Clock* clock, const EarlierRuns& earlier,
                 size_t most_open = kMostOpen);

  using Look = std::function<absl::StatusOr<model::VolumeStatus>(const std::string&)>;
  /// `wake`: the next Turn is due earlier than the last one said. Called without locks of this
  /// object. Call it before the first Turn and before clients can change volumes.
  void Start(Look look, std::function<void()> wake);

  void OnVolumeChanged(const model::VolumeStatus& volume) override;
  void OnVolumeDetails(const model::VolumeStatus& volume) override { OnVolumeChanged(volume); }

  /// Makes the rows that are due; `all`: of all held volumes. For one thread at a time. Returns how
  /// long the next turn can wait; empty: until `wake`.
  std::optional<std::chrono::nanoseconds> Turn(bool all);

  int64_t left_out() const;

 private:
  struct Followed {
    int64_t since_ns = 0;
    bool kept = false;                       // no LIVE scan may overwrite it
    std::optional<storage::HistoryRow> row;  // it has one
  };
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  /// Whether `wake` is to be called.
  bool Follow(const model::VolumeStatus& volume);
  void End(const model::VolumeStatus& volume);
  void Record(const std::string& name);
  /// Whether the volume gets its row now. If not, it is due later.
  bool Ripe(const std::string& name, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  storage::HistoryWriter* const writer_;
  const Clock* const clock_;
  const size_t most_open_;
  Look look_;
  std::function<void()> wake_;

  mutable Mutex mutex_;
  std::map<std::string, Followed> followed_ ABSL_GUARDED_BY(mutex_);  // held volumes
  std::multimap<int64_t, std::string> due_ ABSL_GUARDED_BY(mutex_);   // those without a row
  int64_t next_ns_ ABSL_GUARDED_BY(mutex_) = kNever;                  // of the next turn
  double budget_ ABSL_GUARDED_BY(mutex_) = kBurst;                    // rows of fresh volumes
  int64_t budget_ns_ ABSL_GUARDED_BY(mutex_) = 0;                     // as of
  size_t open_ ABSL_GUARDED_BY(mutex_) = 0;                           // those with a row
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_);
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace octavo::engine
