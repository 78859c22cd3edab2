#pragma once

namespace octavo {

/// The seconds that the parts of a stop may take. Before each part they are told to the backstop,
/// which ends a daemon that hangs, and to systemd, which has to wait longer than the backstop.
struct StopTimes {
  /// What follows a part (closing files, ending threads) takes time, too.
  static constexpr double kRest = 5, kLongRest = 10;

  double drain_seconds = 0;  // drain.seconds: how long running work may go on

  /// Of the backstop, for running work, and for the rest of the end.
  double ForWork() const { return drain_seconds + kRest; }
  /// Of the backstop, for work that was told to end: it may settle.
  double ForSettling() const { return drain_seconds + kLongRest; }
  /// Of the backstop, while held volumes are written; `left`: by the bounds of the writing.
  static double ForWriting(double left) { return left + kLongRest; }

  /// Of systemd, for each of the first two.
  double AskedForWork() const { return drain_seconds + kLongRest; }
  /// Of systemd, while held volumes are written, and for what follows that.
  double AskedForWriting(double left) const { return left + drain_seconds + kLongRest; }

  /// Whether a stop may take so long. `keeps`: held volumes are written, for `spill_seconds`, or
  /// with 0 as long as that makes progress (drain.spill_seconds).
  bool MayTake(double seconds, bool keeps, double spill_seconds) const {
    if (keeps && spill_seconds <= 0) return true;
    return ForWork() + (keeps ? spill_seconds : 0) >= seconds;
  }
};

}  // namespace octavo
