#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/unique_fd.h"
#include "server/model/status_types.h"

namespace octavo::drain {

/// The file <state.dir>/held_at_stop.jsonl: which volumes an end of the daemon put at risk, and
/// which of them it saved. It is written as it happens, so that after SIGKILL the next daemon names
/// what is missing. It is not synced: a loss of power may take it. A file that cannot be written
/// costs only that. Not thread-safe.
class DrainRecord {
 public:
  /// Begins a new record. Errors are logged.
  explicit DrainRecord(const std::string& state_dir);
  void AtRisk(const model::VolumeStatus& volume);
  void Safe(const std::string& volume);
  /// Lost for good, and the log says so; the next daemon repeats it.
  void Lost(const std::string& volume, const std::string& reason);
  /// The daemon has done what it could. Removes the file if nothing was lost.
  void Close();

  /// A volume that the last end lost.
  struct LostVolume {
    std::string name;  // empty: the record cannot be read
    std::string line;  // for people: "volumes/… ('title', 64.0 MiB): lost …"
    std::string reason;
    std::string owner;
    int64_t bytes = 0;
    bool killed = false;  // the daemon died before it had said what becomes of it
  };
  /// What the last end lost. `present`: the volumes that are held again; they are not lost,
  /// whatever the record says.
  static std::vector<LostVolume> ReadLost(const std::string& state_dir,
                                          const std::set<std::string>& present);
  /// Removes the record: what it says has been told.
  static void Forget(const std::string& state_dir);

 private:
  void Write(const std::string& line);

  const std::string path_;
  UniqueFd fd_;
  std::set<std::string> at_risk_;
  bool lost_ = false;
};

}  // namespace octavo::drain
