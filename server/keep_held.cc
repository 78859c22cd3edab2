#include "server/keep_held.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"
#include "server/model/volume_states.h"

namespace octavo::drain {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(10);
// How long cancelled writing may take to end before the volumes are counted.
constexpr std::chrono::seconds kForCancels(2);

// A shortage of memory passes: readers give back what they have.
constexpr int kTries = 50;
constexpr std::chrono::milliseconds kBetweenTries(100);

bool Passes(const absl::Status& error) {
  const Reason reason = InfoOf(error).reason;
  return absl::IsResourceExhausted(error) && reason != Reason::kSpillQuota &&
         reason != Reason::kDiskFull;
}

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

model::Orphan OrphanOf(const model::VolumeStatus& volume) {
  if (!volume.job.empty()) return volume.job_orphan;
  return volume.origin == nullptr ? model::Orphan::kDefault : volume.origin->spec.retention.orphan;
}

// (class, -seconds to live, age): less is worth more.
std::tuple<int, double, uint64_t> Rank(const model::VolumeStatus& volume) {
  int rank = 0;
  double living = 0;
  if (volume.state == model::VolumeState::kCommitting) {
    rank = 4;
  } else if (volume.marked) {
    rank = 0;
  } else if (volume.expires_seconds != 0) {
    rank = 3;
    living = -volume.expires_seconds;
  } else if (OrphanOf(volume) == model::Orphan::kDiscard) {
    rank = 2;
  } else if (!volume.derived_from.empty()) {
    rank = 1;
  }
  return {rank, living, volume.number};
}

/// One run of KeepHeld.
class Keeper {
 public:
  Keeper(Shelf& shelf, const KeepOptions& options, const KeepCallbacks& callbacks)
      : shelf_(shelf),
        options_(options),
        callbacks_(callbacks),
        begin_(std::chrono::steady_clock::now()),
        bounds_(options.seconds, begin_) {}

  Kept Run() {
    std::string over;
    for (;;) {
      TakeEnds();
      const bool more = BeginNext();
      Report();
      if (!more && running_.empty() && (!shelf_.Busy() || Settled())) break;
      const auto now = std::chrono::steady_clock::now();
      over = bounds_.Over(now);
      if (callbacks_.hurry && callbacks_.hurry()) over = "the server was told a second time to end";
      if (!over.empty()) break;
      std::this_thread::sleep_for(kBetweenLooks);
    }
    if (!over.empty()) GiveUp();
    for (model::VolumeStatus& volume : List()) {
      const auto failed = failed_.find(volume.name);
      std::string reason = failed != failed_.end() ? failed->second
                           : options_.ways.empty() ? options_.why_none
                           : over.empty()          ? "it came after the others were written"
                                                   : over;
      kept_.lost.push_back({.volume = std::move(volume), .reason = std::move(reason)});
    }
    kept_.seconds = Seconds(std::chrono::steady_clock::now() - begin_);
    return kept_;
  }

 private:
  struct Writing {
    model::VolumeStatus volume;
    std::string operation;
    int64_t done_bytes = 0;
  };

  bool Settled() const { return std::chrono::steady_clock::now() - begin_ > options_.settle; }

  /// The volumes at risk, by their worth. Tells of new ones, and of those that are no more.
  std::vector<model::VolumeStatus> List() {
    std::vector<model::VolumeStatus> volumes = shelf_.Volumes();
    std::erase_if(volumes, [](const model::VolumeStatus& volume) { return !AtRisk(volume); });
    SortByWorth(&volumes);
    std::set<std::string> now;
    for (const model::VolumeStatus& volume : volumes) {
      now.insert(volume.name);
      if (!at_risk_.insert(volume.name).second) continue;
      ++of_volumes_;
      of_bytes_ += volume.bytes;
      if (callbacks_.at_risk) callbacks_.at_risk(volume);
    }
    for (auto it = at_risk_.begin(); it != at_risk_.end();) {
      if (now.contains(*it)) {
        ++it;
        continue;
      }
      if (callbacks_.safe) callbacks_.safe(*it);
      it = at_risk_.erase(it);
    }
    return volumes;
  }

  /// Looks at the operations that run, and takes those that have ended.
  void TakeEnds() {
    for (auto it = running_.begin(); it != running_.end();) {
      Writing& one = it->second;
      const auto now = shelf_.Look(one.operation);
      if (now.ok() && !operation::IsFinal(now->state)) {
        one.done_bytes = now->progress.done_bytes;
        ++it;
        continue;
      }
      const absl::Status error = now.ok() ? now->error : now.status();
      if (error.ok()) {
        ++kept_.volumes;
        kept_.bytes += one.volume.bytes;
      } else {
        Failed(one.volume.name, error);
      }
      it = running_.erase(it);
    }
  }

  void Failed(const std::string& volume, const absl::Status& error) {
    if (absl::IsCancelled(error)) return;  // by a client: it is begun anew
    if (Passes(error) && ++tries_[volume] < kTries) {
      not_before_[volume] = std::chrono::steady_clock::now() + kBetweenTries;
      return;
    }
    const size_t way = next_way_[volume]++;
    if (way + 1 < options_.ways.size()) {
      Log(LogLevel::kWarning, "held volume not committed; it is spilled instead",
          {{"volume", volume}, {"error", std::string(error.message())}});
      return;
    }
    failed_[volume] = std::string(error.message());
  }

  /// Begins to write as many volumes as may be. Whether any is left that could still be written.
  bool BeginNext() {
    bool more = false;
    if (options_.ways.empty()) {
      (void)List();
      return false;
    }
    for (const model::VolumeStatus& volume : List()) {
      if (running_.contains(volume.name) || failed_.contains(volume.name)) continue;
      more = true;
      if (std::ssize(running_) >= options_.at_once) break;
      if (const auto it = not_before_.find(volume.name);
          it != not_before_.end() && std::chrono::steady_clock::now() < it->second)
        continue;
      const Way way = options_.ways[next_way_[volume.name]];
      if (volume.state == model::VolumeState::kCommitting && (!Settled() || way == Way::kCommit))
        continue;
      auto begun = shelf_.Begin(volume, way);
      if (begun.ok()) {
        running_[volume.name] = {.volume = volume, .operation = *std::move(begun)};
      } else if (!base::IsRetryable(begun.status()) && !absl::IsNotFound(begun.status())) {
        Failed(volume.name, begun.status());
      }
    }
    return more;
  }

  void Report() {
    Progress progress{.volumes = kept_.volumes,
                      .of_volumes = of_volumes_,
                      .bytes = kept_.bytes,
                      .of_bytes = of_bytes_};
    for (const auto& [name, one] : running_) progress.bytes += one.done_bytes;
    const auto now = std::chrono::steady_clock::now();
    bounds_.Written(progress.bytes, now);
    progress.seconds_left = bounds_.SecondsLeft(now);
    if (callbacks_.progress) callbacks_.progress(progress);
  }

  void GiveUp() {
    for (const auto& [name, one] : running_) shelf_.Cancel(one.operation);
    const auto until = std::chrono::steady_clock::now() + kForCancels;
    for (;;) {
      // What is cancelled is lost because the time is over, and not because it was cancelled.
      for (auto it = running_.begin(); it != running_.end();) {
        const auto now = shelf_.Look(it->second.operation);
        if (now.ok() && !operation::IsFinal(now->state)) {
          ++it;
          continue;
        }
        if (now.ok() && now->error.ok()) {
          ++kept_.volumes;
          kept_.bytes += it->second.volume.bytes;
        }
        it = running_.erase(it);
      }
      if (running_.empty() || std::chrono::steady_clock::now() > until) return;
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

  Shelf& shelf_;
  const KeepOptions& options_;
  const KeepCallbacks& callbacks_;
  const TimeOnClock begin_;
  WriteBounds bounds_;
  std::map<std::string, Writing> running_;         // by volume
  std::map<std::string, std::string> failed_;      // volume → why, in its last way
  std::map<std::string, int> tries_;               // by volume, those that failed for memory
  std::map<std::string, TimeOnClock> not_before_;  // by volume
  std::map<std::string, size_t> next_way_;         // by volume
  std::set<std::string> at_risk_;                  // as told
  int64_t of_volumes_ = 0, of_bytes_ = 0;
  Kept kept_;
};

}  // namespace

bool AtRisk(const model::VolumeStatus& volume) {
  return model::IsComplete(volume.state) && volume.tier != model::Tier::kDisk && !volume.mirrored;
}

void SortByWorth(std::vector<model::VolumeStatus>* volumes) {
  std::stable_sort(
      volumes->begin(), volumes->end(),
      [](const model::VolumeStatus& a, const model::VolumeStatus& b) { return Rank(a) < Rank(b); });
}

void WriteBounds::Written(int64_t bytes, TimeOnClock now) {
  // What is written anew after it broke off is no progress.
  if (bytes <= bytes_) return;
  bytes_ = bytes;
  progress_ = now;
}

std::string WriteBounds::Over(TimeOnClock now) const {
  if (seconds_ > 0 && Seconds(now - begin_) >= seconds_)
    return absl::StrCat("drain.spill_seconds (", seconds_, ") were over");
  if (now - progress_ >= kPatience)
    return absl::StrCat("nothing was written for ", kPatience.count(), " s");
  return "";
}

double WriteBounds::SecondsLeft(TimeOnClock now) const {
  const double patience = Seconds(kPatience - (now - progress_));
  const double left =
      seconds_ > 0 ? std::min(patience, seconds_ - Seconds(now - begin_)) : patience;
  return std::max(0.0, left);
}

Kept KeepHeld(Shelf& shelf, const KeepOptions& options, const KeepCallbacks& callbacks) {
  return Keeper(shelf, options, callbacks).Run();
}

}  // namespace octavo::drain
