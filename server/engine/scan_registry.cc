#include "server/engine/scan_registry.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::engine {
namespace {

void AddStats(const model::Stats& from, model::Stats* to) {
  for (const auto& [key, n] : from.scans_finished) to->scans_finished[key] += n;
  for (const auto& [key, n] : from.blocks_dropped) to->blocks_dropped[key] += n;
  for (const auto& [key, n] : from.source_records_lost) to->source_records_lost[key] += n;
  for (const auto& [key, n] : from.camera_frames_lost) to->camera_frames_lost[key] += n;
  for (const auto& [key, n] : from.records_without_place) to->records_without_place[key] += n;
  for (const auto& [key, n] : from.volumes_finished) to->volumes_finished[key] += n;
  for (const auto& [key, n] : from.allocation_failures) to->allocation_failures[key] += n;
  for (const auto& [key, h] : from.stage_seconds) to->stage_seconds[key].Merge(h);
  to->volume_latency_seconds.Merge(from.volume_latency_seconds);
  to->records += from.records;
  to->records_not_finite += from.records_not_finite;
  to->source_overruns += from.source_overruns;
  to->ring_blocks_broken += from.ring_blocks_broken;
  to->missing_ascans += from.missing_ascans;
  to->voxels += from.voxels;
  for (const auto& [key, n] : from.voxels_clipped) to->voxels_clipped[key] += n;
}

}  // namespace

void ScanRegistry::Add(const std::shared_ptr<scan::ScanSession>& session) {
  MutexLock lock(mutex_);
  sessions_[session->name()] = session;
  order_.emplace(++added_, session->name());
  ++admitted_;
  ForgetOldLocked();
}

void ScanRegistry::Remove(const std::string& name) {
  std::shared_ptr<scan::ScanSession> removed;  // ends without the lock
  MutexLock lock(mutex_);
  if (const auto it = sessions_.find(name); it != sessions_.end()) {
    removed = std::move(it->second);
    sessions_.erase(it);
  }
  std::erase_if(order_, [&](const auto& numbered) { return numbered.second == name; });
}

absl::StatusOr<std::shared_ptr<scan::ScanSession>> ScanRegistry::Find(const std::string& name) {
  MutexLock lock(mutex_);
  auto it = sessions_.find(name);
  if (it == sessions_.end()) {
    return WithInfo(absl::NotFoundError(absl::StrCat("no scan ", name)),
                    {.reason = Reason::kNoScan, .field = "name", .numbers = {}});
  }
  return it->second;
}

std::vector<std::shared_ptr<scan::ScanSession>> ScanRegistry::All() {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<scan::ScanSession>> list;
  for (const auto& [name, session] : sessions_) list.push_back(session);
  return list;
}

std::vector<std::pair<uint64_t, std::shared_ptr<scan::ScanSession>>> ScanRegistry::Newest(
    uint64_t before, size_t most) {
  MutexLock lock(mutex_);
  std::vector<std::pair<uint64_t, std::shared_ptr<scan::ScanSession>>> list;
  for (auto it = order_.lower_bound(before); it != order_.begin() && list.size() < most;) {
    --it;
    if (const auto session = sessions_.find(it->second); session != sessions_.end())
      list.emplace_back(it->first, session->second);
  }
  return list;
}

uint64_t ScanRegistry::NumberOf(const std::string& name) {
  MutexLock lock(mutex_);
  const auto it = std::find_if(order_.rbegin(), order_.rend(),
                               [&](const auto& numbered) { return numbered.second == name; });
  return it == order_.rend() ? 0 : it->first;
}

void ScanRegistry::ForgetOld() {
  MutexLock lock(mutex_);
  ForgetOldLocked();
}

void ScanRegistry::ForgetOldLocked() {
  int64_t bytes = 0;
  for (const auto& [name, session] : sessions_)
    bytes += session->finished() ? session->ListedBytes() : 0;
  const auto too_many = [&] {
    return std::ssize(order_) > limits_.entries || bytes > limits_.bytes;
  };
  if (!too_many()) return;
  const std::set<std::string> needed = volumes_->ScansInMemory();
  for (auto it = order_.begin(); too_many() && it != order_.end();) {
    const std::string& name = it->second;
    auto session = sessions_.find(name);
    if (session != sessions_.end() && session->second->finished() && needed.count(name) == 0) {
      bytes -= session->second->ListedBytes();
      AddScan(*session->second, session->second->Status(), &past_);
      volumes_->ForgetScan(name);
      spiller_->ForgetScan(name);
      sessions_.erase(session);
      it = order_.erase(it);
    } else {
      ++it;
    }
  }
}

void ScanRegistry::Clear() {
  MutexLock lock(mutex_);
  sessions_.clear();
  order_.clear();
}

void ScanRegistry::CountRejected(const absl::Status& status) {
  MutexLock lock(mutex_);
  ++rejected_[std::string(Name(ReasonOrCode(status)))];
}

void ScanRegistry::CountAllocationFailure(const std::string& device) {
  MutexLock lock(mutex_);
  ++past_.allocation_failures[device];
}

std::vector<std::shared_ptr<scan::ScanSession>> ScanRegistry::AllAndPast(model::Stats* stats) {
  std::vector<std::shared_ptr<scan::ScanSession>> list;
  MutexLock lock(mutex_);
  for (const auto& [name, session] : sessions_) list.push_back(session);
  AddStats(past_, stats);
  stats->scans_rejected = rejected_;
  return list;
}

void ScanRegistry::AddScan(scan::ScanSession& session, const model::ScanStatus& scan,
                           model::Stats* stats) {
  if (IsFinal(scan.state)) ++stats->scans_finished[std::string(Name(scan.reason_code))];
  stats->records += scan.records;
  stats->source_records_lost["gap"] += scan.source.lost_records - scan.source.overrun_records;
  stats->source_records_lost["overrun"] += scan.source.overrun_records;
  stats->source_records_lost["duplicate"] += scan.source.duplicate_records;
  stats->source_records_lost["out_of_range"] += scan.source.out_of_range_records;
  stats->camera_frames_lost["lost"] += scan.source.frames_lost;
  stats->camera_frames_lost["broken"] += scan.source.frames_broken;
  stats->blocks_dropped["overrun"] += scan.blocks_dropped;
  stats->records_without_place["duplicate"] += scan.duplicate_records;
  stats->records_without_place["out_of_range"] += scan.out_of_range_records;
  stats->records_not_finite += scan.non_finite_records;
  stats->source_overruns +=
      scan.blocks_dropped + (scan.source.overruns > 0 ? scan.source.overruns
                                                      : scan.reason_code == Reason::kSourceOverrun);
  stats->ring_producers += scan.source.ring && scan.source.connected;
  stats->ring_blocks_broken += scan.source.broken_blocks;
  stats->volumes_finished["dropped"] += scan.volumes_dropped;
  stats->missing_ascans += scan.missing_ascans;
  stats->voxels += scan.voxels;
  stats->voxels_clipped["below"] += scan.clipped_below;
  stats->voxels_clipped["above"] += scan.clipped_above;
  const auto timings = session.TimingsNow();
  for (const auto& [stage, histogram] : timings.stages)
    stats->stage_seconds[stage].Merge(histogram);
  stats->volume_latency_seconds.Merge(timings.volume_latency);
}

absl::StatusOr<bool> ScanRegistry::HasEnded(const std::string& scan) {
  OCTAVO_ASSIGN_OR_RETURN(const auto session, Find(scan));
  return session->finished();
}

int64_t ScanRegistry::SpareSlots(const model::VolumeStatus& volume) {
  if (volume.origin == nullptr) return std::numeric_limits<int64_t>::max();
  const model::Retention& retention = volume.origin->spec.retention;
  if (retention.mode == model::RetentionMode::kLive)
    return retention.hold_slots;  // hold slots, in addition to the ring's own
  // A held volume keeps its slot anyhow.
  if (retention.disposition == model::Disposition::kAsk && !model::Spills(retention.on_full))
    return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(1, scan::VolumeSlots(*volume.origin) - 2);
}

}  // namespace octavo::engine
