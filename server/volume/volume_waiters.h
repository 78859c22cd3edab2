#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/base/change_teller.h"
#include "server/base/exception_to_status.h"
#include "server/model/status_types.h"
#include "server/volume/volume_observer.h"

namespace octavo::volume {

/// Clients that wait for a volume to be complete. Thread-safe; callbacks run without locks. A
/// thread that changes a volume answers nobody: a ChangeTeller does.
class VolumeWaiters final : public VolumeObserver {
 public:
  using Done = std::function<void(absl::StatusOr<model::VolumeStatus>)>;

  /// `done` is called once; soon if `get` reports that the volume is not being acquired. An
  /// error of `get` is returned instead. `over` (may be null; must be short, runs under the lock)
  /// says that the waiter has gone; `done` need not be called then.
  absl::Status Add(
      const std::string& name,
      const std::function<absl::StatusOr<model::VolumeStatus>(const std::string&)>& get, Done done,
      std::function<bool()> over = nullptr) {
    OCTAVO_RETURN_IF_ERROR(get(name).status());
    std::vector<Wait> gone;  // destroyed without the lock
    {
      MutexLock lock(mutex_);
      std::vector<Wait>& waiting = waiting_[name];
      // A client that polls must not leave a waiter behind each time.
      const auto first = std::stable_partition(
          waiting.begin(), waiting.end(),
          [](const Wait& wait) { return wait.over == nullptr || !wait.over(); });
      gone.assign(std::make_move_iterator(first), std::make_move_iterator(waiting.end()));
      waiting.erase(first, waiting.end());
      waiting.push_back({.done = std::move(done), .over = std::move(over)});
    }
    // The volume may have become complete in the meantime. Then this call notifies the waiters,
    // unless the thread that completed it already has.
    if (auto now = get(name); now.ok()) OnVolumeChanged(*now);
    return absl::OkStatus();
  }

  void OnVolumeChanged(const model::VolumeStatus& volume) override {
    if (volume.state == model::VolumeState::kAcquiring) return;
    const auto told = std::make_shared<std::vector<Wait>>();
    {
      MutexLock lock(mutex_);
      auto it = waiting_.find(volume.name);
      if (it == waiting_.end()) return;
      *told = std::move(it->second);
      waiting_.erase(it);
    }
    try {
      teller_.Post([volume, told] { Answer(volume, *told); });
    } catch (...) {  // no memory to leave it to another thread
      Answer(volume, *told);
    }
  }
  /// Returns when those who waited for what has happened before are told, for tests.
  void Flush() { teller_.Flush(); }

 private:
  struct Wait {
    Done done;
    std::function<bool()> over;
  };
  static void Answer(const model::VolumeStatus& volume, const std::vector<Wait>& told) {
    for (const Wait& wait : told) {
      try {
        wait.done(AnswerOf(volume));
      } catch (...) {  // the others get their answers
        Log(LogLevel::kError, "a client that waits for a volume is not told",
            {{"volume", volume.name}, {"error", base::StatusOfException().ToString()}});
      }
    }
  }
  static absl::StatusOr<model::VolumeStatus> AnswerOf(const model::VolumeStatus& volume) {
    if (volume.state != model::VolumeState::kFailed) return volume;
    return WithInfo(absl::DataLossError(absl::StrCat(volume.name, " failed: ", volume.reason)),
                    {.reason = Reason::kVolumeFailed, .field = "name", .numbers = {}});
  }

  Mutex mutex_;
  std::map<std::string, std::vector<Wait>> waiting_ ABSL_GUARDED_BY(mutex_);
  base::ChangeTeller teller_;
};

}  // namespace octavo::volume
