#include "server/volume/growth.h"

#include "gpu/base/status.h"

namespace octavo::volume {

void Growth::Reach(int64_t bytes, Event done) {
  MutexLock lock(mutex_);
  if (outcome_.has_value()) return;  // nobody reads it any more
  marks_.push_back({.bytes = bytes, .done = std::move(done)});
  changed_.NotifyAll();
}

std::optional<Growth::Outcome> Growth::Seal(VolumeCommit& commit) {
  MutexLock lock(mutex_);
  if (outcome_.has_value()) return outcome_;
  commit_ = std::move(commit);
  sealed_ = true;
  changed_.NotifyAll();
  return std::nullopt;
}

void Growth::Fail(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (sealed_ || !failed_.ok()) return;
  failed_ = why;
  changed_.NotifyAll();
}

Growth::Mark* Growth::Covering(int64_t bytes) {
  while (!marks_.empty() && marks_.front().bytes < bytes) marks_.pop_front();
  return marks_.empty() ? nullptr : &marks_.front();
}

bool Growth::Has(int64_t bytes) {
  MutexLock lock(mutex_);
  if (bytes <= passed_) return true;
  Mark* const mark = Covering(bytes);
  if (mark == nullptr) return false;
  const absl::StatusOr<bool> passed = mark->done.Query();
  if (!passed.ok() || !*passed) return false;  // AwaitBytes tells the error
  passed_ = mark->bytes;
  return true;
}

absl::Status Growth::AwaitBytes(int64_t bytes, const std::function<bool()>& unwanted) {
  Mark mark;
  {
    MutexLock lock(mutex_);
    while (true) {
      if (unwanted()) return absl::OkStatus();
      OCTAVO_RETURN_IF_ERROR(failed_);
      if (bytes <= passed_) return absl::OkStatus();
      if (Covering(bytes) != nullptr) break;
      changed_.Wait(lock);
    }
    mark = std::move(marks_.front());
    marks_.pop_front();
  }
  // The maker goes on meanwhile.
  OCTAVO_RETURN_IF_ERROR(mark.done.Synchronize());
  MutexLock lock(mutex_);
  passed_ = mark.bytes;
  return absl::OkStatus();
}

absl::Status Growth::AwaitSeal(const std::function<bool()>& unwanted) {
  MutexLock lock(mutex_);
  while (!sealed_ && failed_.ok() && !unwanted()) changed_.Wait(lock);
  return failed_;
}

VolumeCommit Growth::Close(const Outcome& outcome) {
  MutexLock lock(mutex_);
  outcome_ = outcome;
  marks_.clear();
  return std::move(commit_);
}

void Growth::Wake() {
  MutexLock lock(mutex_);
  changed_.NotifyAll();
}

}  // namespace octavo::volume
