#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/engine/status_types.h"

namespace octavo::engine {

/// Who waits for volumes to be complete. Thread-safe; callbacks run without locks, on the thread that brought the news.
class VolumeWaits {
 public:
  using Done = std::function<void(absl::StatusOr<VolumeStatus>)>;

  /// `done` is called once: at once if `get` says that the volume is not being acquired. An error of `get` is returned instead.
  absl::Status Add(const std::string& name, const std::function<absl::StatusOr<VolumeStatus>(const std::string&)>& get, Done done) {
    OCTAVO_RETURN_IF_ERROR(get(name).status());
    {
      MutexLock lock(mutex_);
      waiting_[name].push_back(std::move(done));
    }
    // It may have become complete since: then those who wait are told here, or were by whoever completed it.
    if (auto now = get(name); now.ok()) Tell(*now);
    return absl::OkStatus();
  }

  void Tell(const VolumeStatus& volume) {
    if (volume.state == VolumeState::kAcquiring) return;
    std::vector<Done> told;
    {
      MutexLock lock(mutex_);
      auto it = waiting_.find(volume.name);
      if (it == waiting_.end()) return;
      told = std::move(it->second);
      waiting_.erase(it);
    }
    for (const Done& done : told) {
      if (volume.state == VolumeState::kFailed) {
        done(WithInfo(absl::DataLossError(absl::StrCat(volume.name, " failed: ", volume.reason)),
                      {.reason = "VOLUME_FAILED", .field = "name", .numbers = {}}));
      } else {
        done(volume);
      }
    }
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::vector<Done>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::engine
