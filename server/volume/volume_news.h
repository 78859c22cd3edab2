#pragma once

#include <string>
#include <vector>

#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// Changes of neither state nor tier that a verb makes under the table's lock. They are told when
/// this object ends; declare it before the lock, so that the lock has been released by then.
class VolumeNews {
 public:
  explicit VolumeNews(VolumeTable& table) : table_(table) {}
  VolumeNews(const VolumeNews&) = delete;
  VolumeNews& operator=(const VolumeNews&) = delete;
  ~VolumeNews() {
    for (const model::VolumeStatus& volume : changed_) table_.TellDetails(volume);
  }

  /// Call it after the change, which stands even if there is no memory to tell it.
  void Add(VolumeEntry& entry) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex()) {
    try {
      changed_.push_back(table_.Changed(entry));
    } catch (...) {
      Log(LogLevel::kError, "a change of a volume is not told",
          {{"volume", entry.name()}, {"error", base::StatusOfException().ToString()}});
    }
  }

 private:
  VolumeTable& table_;
  std::vector<model::VolumeStatus> changed_;
};

}  // namespace octavo::volume
