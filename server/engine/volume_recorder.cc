#include "server/engine/volume_recorder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"
#include "server/engine/history_rows.h"
#include "server/model/volume_states.h"

namespace octavo::engine {

VolumeRecorder::VolumeRecorder(storage::HistoryWriter* writer, const Clock* clock,
                               const EarlierRuns& earlier, size_t most_open)
    : writer_(writer),
      clock_(clock),
      most_open_(most_open),
      last_number_(earlier.LastNumber(storage::HistoryKind::kVolume)) {
  for (const storage::HistoryRow& row : earlier.held()) {
    followed_[row.name].row = row;
    ++open_;
  }
}

void VolumeRecorder::Start(Look look, std::function<void()> wake) {
  look_ = std::move(look);
  wake_ = std::move(wake);
}

void VolumeRecorder::OnVolumeChanged(const model::VolumeStatus& volume) {
  if (writer_ == nullptr || volume.held_unix_ns == 0) return;
  if (model::InMemory(volume.state)) {
    if (Follow(volume) && wake_) wake_();
  } else {
    End(volume);
  }
}

bool VolumeRecorder::Follow(const model::VolumeStatus& volume) {
  const int64_t now = clock_->Now().monotonic_ns;
  MutexLock lock(mutex_);
  const auto [place, is_new] = followed_.try_emplace(volume.name);
  Followed& followed = place->second;
  if (is_new) {
    followed.since_ns = now;
  } else if (followed.row.has_value() || followed.kept == volume.kept) {
    return false;
  }
  followed.kept = volume.kept;
  const int64_t due = followed.since_ns + (followed.kept ? kFreshNs : kRingNs);
  due_.emplace(due, volume.name);
  if (due >= next_ns_) return false;
  next_ns_ = due;
  return true;
}

void VolumeRecorder::End(const model::VolumeStatus& volume) {
  storage::HistoryRow row;
  {
    MutexLock lock(mutex_);
    const auto found = followed_.find(volume.name);
    if (found == followed_.end()) return;
    std::optional<storage::HistoryRow> had = std::move(found->second.row);
    followed_.erase(found);
    if (!had.has_value()) return;
    --open_;
    row = *std::move(had);
  }
  EndRow(volume, clock_->Now(), &row);
  writer_->Put(std::move(row));
}

bool VolumeRecorder::Ripe(const std::string& name, int64_t now_ns) {
  const auto found = followed_.find(name);
  if (found == followed_.end() || found->second.row.has_value()) return false;
  const Followed& followed = found->second;
  const int64_t ripe = followed.since_ns + (followed.kept ? kSettledNs : kRingNs);
  if (now_ns >= ripe) return true;
  if (followed.kept && budget_ >= 1) {
    --budget_;
    return true;
  }
  due_.emplace(ripe, name);
  return false;
}

std::optional<std::chrono::nanoseconds> VolumeRecorder::Turn(bool all) {
  if (writer_ == nullptr) return std::nullopt;
  const int64_t now = clock_->Now().monotonic_ns;
  std::vector<std::string> ripe;
  {
    MutexLock lock(mutex_);
    budget_ = std::min(kBurst, budget_ + static_cast<double>(now - budget_ns_) * 1e-9 * kPerSecond);
    budget_ns_ = now;
    while (!due_.empty() && (all || due_.begin()->first <= now)) {
      std::string name = std::move(due_.begin()->second);
      due_.erase(due_.begin());
      if (Ripe(name, all ? kNever : now)) ripe.push_back(std::move(name));
    }
    next_ns_ = due_.empty() ? kNever : due_.begin()->first;
  }
  for (const std::string& name : ripe) {
    const absl::Status recorded = base::ExceptionToStatus([&] {
      Record(name);
      return absl::OkStatus();
    });
    if (!recorded.ok())
      Log(LogLevel::kError, "the history lacks a change",
          {{"of", name}, {"error", recorded.ToString()}});
  }
  MutexLock lock(mutex_);
  if (next_ns_ == kNever) return std::nullopt;
  return std::chrono::nanoseconds(std::max<int64_t>(0, next_ns_ - now));
}

void VolumeRecorder::Record(const std::string& name) {
  const auto volume = look_(name);
  const bool held = volume.ok() && model::IsComplete(volume->state);
  storage::HistoryRow row;
  if (held) row = RowOf(*volume, 0);
  bool first_left_out = false;
  {
    MutexLock lock(mutex_);
    const auto found = followed_.find(name);
    if (found == followed_.end() || found->second.row.has_value()) return;
    if (!held) {  // it left, and the news of that came before others
      followed_.erase(found);
      return;
    }
    if (open_ >= most_open_) {
      first_left_out = left_out_++ == 0;
    } else {
      row.number = ++last_number_;
      found->second.row = row;
      ++open_;
      writer_->Put(std::move(row));  // under the lock: before the row of its end
    }
  }
  if (first_left_out)
    Log(LogLevel::kWarning,
        "the history follows no more held volumes; those beyond are counted, and a death of the "
        "server would lose them without their names",
        {{"most", most_open_}, {"first", name}});
  // Its end may have been told while nothing was there to end.
  if (const auto now = look_(name); now.ok() && !model::InMemory(now->state)) End(*now);
}

int64_t VolumeRecorder::left_out() const {
  MutexLock lock(mutex_);
  return left_out_;
}

}  // namespace octavo::engine
