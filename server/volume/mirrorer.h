#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::volume {

/// Copies held volumes into the tier DISK while nothing else wants the disk, one at a time, the
/// oldest first (VolumeTiers::BeginMirror), so that a server that is killed loses none of them. The
/// bytes stay where they are. A copy that fails is no matter of the volume: it is counted, and
/// tried again later. It has a thread of its own, because a copy takes as long as the disk does.
class Mirrorer {
 public:
  using Duration = std::chrono::steady_clock::duration;
  struct Pace {
    /// So long nothing else used the disk: clients that write volume after volume leave gaps.
    Duration quiet = std::chrono::seconds(1);
    /// So long a volume is held: many are committed or discarded at once.
    double held_seconds = 1;
    /// How often it looks whether the disk is in use, and whether there is a volume.
    Duration look = std::chrono::milliseconds(100);
    /// After a failure nothing is tried for so long, twice as long after the next, up to
    /// `most_pause`. The volume itself waits for `most_pause`: the others go first.
    Duration first_pause = std::chrono::seconds(1), most_pause = std::chrono::minutes(1);
  };
  struct Context {
    Spiller* spiller = nullptr;
    VolumeStore* volumes = nullptr;
    /// Whether something other than mirrors uses the disk, or is about to. Must not block.
    std::function<bool()> busy;
  };
  explicit Mirrorer(Context context) : Mirrorer(std::move(context), Pace()) {}
  Mirrorer(Context context, Pace pace);
  /// Gives up the copy that is being made.
  ~Mirrorer();

 private:
  using Time = std::chrono::steady_clock::time_point;
  void Run();
  /// Makes one mirror, if a volume needs one.
  void MirrorOne();
  /// Returns once the disk was quiet for long enough; false if it is stopped before.
  bool WaitForQuiet(const std::function<bool()>& stopped);
  void Failed(const std::string& volume, const absl::Status& status);
  /// Waits for the time, or until the end. Whether the end has come.
  bool Sleep(Duration time);
  bool Ends();

  const Context context_;
  const Pace pace_;
  // Of the thread alone:
  Time quiet_since_;
  Time not_before_;                           // nothing is tried until then
  std::map<std::string, Time> try_again_at_;  // by volume, of those that failed
  int failed_ = 0;                            // in a row
  Mutex mutex_;
  CondVar wake_;
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace octavo::volume
