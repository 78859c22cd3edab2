#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace octavo {

/// Which folder the daemons of a state folder spill to: its path and what distinguishes it from
/// another one there. A disk that is not mounted looks like a folder that was never made, or like
/// an empty one; a daemon that began anew in it would take all that is on the disk for lost, and
/// spill to the disk below.
class SpillMark {
 public:
  explicit SpillMark(const std::string& state_dir);

  /// Before the folder is opened. FailedPrecondition if it is missing and the last daemon used it.
  /// A warning, for people, if another folder is there now; else empty.
  absl::StatusOr<std::string> Check(const std::string& spill_dir) const;
  /// Once it is open.
  absl::Status Set(const std::string& spill_dir) const;
  /// The bytes a second that the last daemon wrote there as it ended; 0 = not known.
  double Rate(const std::string& spill_dir) const;
  absl::Status SetRate(const std::string& spill_dir, double bytes_per_second) const;

 private:
  const std::string path_;
};

}  // namespace octavo
