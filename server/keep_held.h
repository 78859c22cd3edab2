#pragma once

// What becomes of held volumes when the daemon ends: the order in which they are written, the
// bounds of the time, and the work itself.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/status_types.h"
#include "server/operation/operation.h"

namespace octavo::drain {

using TimeOnClock = std::chrono::steady_clock::time_point;

/// Whether the daemon's end would lose the volume: held or being committed, and neither on disk nor
/// mirrored there.
bool AtRisk(const model::VolumeStatus& volume);

/// Sorts volumes by their worth, the most precious first, because the time may not suffice:
///   1. those that nothing but a client would ever remove: acquired, or marked by a client;
///   2. those derived from others, which can be made again;
///   3. those whose client wants them discarded once it is gone, as it is with the daemon;
///   4. those whose time to live runs, the longest first.
/// Within each, the oldest first. Last of all those being committed: their commit may save them.
void SortByWorth(std::vector<model::VolumeStatus>* volumes);

/// How long writing may take: `seconds`, or with 0 as long as bytes are written. Writing that makes
/// no progress for kPatience is over in any case. Not thread-safe.
class WriteBounds {
 public:
  /// Storage that syncs a large file may take long without a sign.
  static constexpr std::chrono::seconds kPatience{120};

  WriteBounds(double seconds, TimeOnClock now) : seconds_(seconds), begin_(now), progress_(now) {}
  /// So many bytes are written so far.
  void Written(int64_t bytes, TimeOnClock now);
  /// Why the time is over; empty while it is not.
  std::string Over(TimeOnClock now) const;
  /// How long writing may go on from now if it makes no progress.
  double SecondsLeft(TimeOnClock now) const;

 private:
  const double seconds_;
  const TimeOnClock begin_;
  TimeOnClock progress_;
  int64_t bytes_ = 0;
};

/// How a volume is kept.
enum class Way : uint8_t { kCommit, kSpill };

/// The engine, as far as the drain needs it.
class Shelf {
 public:
  virtual ~Shelf() = default;
  /// The volumes in memory.
  virtual std::vector<model::VolumeStatus> Volumes() = 0;
  /// Whether work still runs that may leave more of them.
  virtual bool Busy() = 0;
  /// Begins to write a volume; the name of the operation. Errors with the number `retryable` are
  /// none for ever.
  virtual absl::StatusOr<std::string> Begin(const model::VolumeStatus& volume, Way way) = 0;
  virtual absl::StatusOr<operation::OperationStatus> Look(const std::string& operation) = 0;
  virtual void Cancel(const std::string& operation) = 0;
};

struct KeepOptions {
  /// In this order, the next one where one fails. None: all volumes are lost, `why_none` says why.
  std::vector<Way> ways;
  std::string why_none;
  double seconds = 0;  // WriteBounds
  int at_once = 4;     // volumes begun and not written yet
  /// How long work that was told to end may take to do so, before its volumes are taken from it.
  std::chrono::milliseconds settle{5000};
};

struct Progress {
  int64_t volumes = 0, of_volumes = 0;  // written; in all
  int64_t bytes = 0, of_bytes = 0;
  double seconds_left = 0;  // WriteBounds::SecondsLeft
};

struct Lost {
  model::VolumeStatus volume;
  std::string reason;
};

struct Kept {
  int64_t volumes = 0, bytes = 0;  // written
  double seconds = 0;
  std::vector<Lost> lost;  // by worth
};

struct KeepCallbacks {
  /// A second request to end: writing ends at once.
  std::function<bool()> hurry;
  /// Several times a second; may be null.
  std::function<void(const Progress&)> progress;
  /// A volume is at risk; a volume is not any more (written, or a client has decided). May be null.
  std::function<void(const model::VolumeStatus&)> at_risk;
  std::function<void(const std::string& name)> safe;
};

/// Writes the volumes at risk, as options.ways says, until none is left, the time is over or
/// somebody hurries. On the calling thread; the writing itself runs on threads of the engine.
Kept KeepHeld(Shelf& shelf, const KeepOptions& options, const KeepCallbacks& callbacks);

}  // namespace octavo::drain
