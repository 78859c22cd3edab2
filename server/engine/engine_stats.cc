#include <algorithm>

#include "server/base/resource_names.h"
#include "server/engine/engine_impl.h"

namespace octavo::engine {

model::Stats EngineImpl::Snapshot() {
  model::Stats stats;
  std::vector<std::shared_ptr<scan::ScanSession>> sessions;
  {
    // The scans that are listed and the sums of those that no longer are, at one moment: a scan
    // that is forgotten while we add must not be counted twice, or the counters would fall with the
    // next look.
    MutexLock lock(mutex_);
    for (const auto& [name, session] : sessions_) sessions.push_back(session);
    AddStats(past_, &stats);
    stats.scans_rejected = rejected_;
  }
  for (const auto& session : sessions) {
    const model::ScanStatus scan = session->Status();
    ++stats.scans_by_state[Name(scan.state)];
    stats.ring_occupancy = std::max(stats.ring_occupancy, scan.ring_occupancy);
    AddSession(*session, scan, &stats);
  }
  const auto counts = volumes_.Count();
  stats.volumes_by_state = counts.by_state;
  const int64_t dropped = stats.volumes_finished["dropped"];
  stats.volumes_finished = counts.finished;
  stats.volumes_finished["dropped"] = dropped;
  stats.oldest_held_seconds = counts.oldest_held_seconds;
  stats.volumes_by_tier = counts.by_tier;
  stats.admission_refusals = ledger_.Refusals();
  publisher_.AddTo(&stats);
  committer_.AddTo(&stats);
  jobs_.AddTo(&stats);
  spiller_->AddTo(&stats);
  const session::ClientSessions::Counts clients = sessions_of_clients_.Count();
  stats.sessions = clients.alive;
  stats.sessions_expired = clients.expired;
  const session::LeaseTable::Totals leases = leases_.CountAll();
  stats.leases = {{"SHARED", leases.now.shared},
                  {"EXCLUSIVE", leases.now.exclusive},
                  {"waiting", leases.now.waiting}};
  stats.leases_granted = leases.granted;
  stats.leases_expired = leases.expired;
  stats.lease_refusals = leases.refused;
  stats.lease_waits = leases.waits;
  stats.lease_wait_seconds = leases.wait_seconds;
  stats.devices = ListDevices();
  const buffer::BufferStore::Totals buffers = buffers_->Count();
  stats.buffers = {.count = buffers.buffers,
                   .owners = buffers.owners,
                   .largest_owner_bytes = buffers.largest_owner_bytes,
                   .quota_bytes = buffers.quota_bytes,
                   .replicas = {},
                   .bytes = {},
                   .written_bytes = buffers.uploaded_bytes,
                   .read_bytes = buffers.read_bytes,
                   .forwarded_bytes = buffers.forwarded_bytes,
                   .operations = buffers.operations,
                   .gone = buffers.gone,
                   .refusals = buffers.refusals};
  for (const auto& [device, n] : buffers.replicas_on)
    stats.buffers.replicas[base::DeviceName(device)] = n;
  for (const auto& [device, bytes] : buffers.bytes_on)
    stats.buffers.bytes[base::DeviceName(device)] = bytes;
  return stats;
}

void EngineImpl::AddSession(scan::ScanSession& session, const model::ScanStatus& scan,
                            model::Stats* stats) {
  if (IsFinal(scan.state)) ++stats->scans_finished[scan.reason_code];
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
      scan.blocks_dropped +
      (scan.source.overruns > 0 ? scan.source.overruns : scan.reason_code == "SOURCE_OVERRUN");
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

void EngineImpl::AddStats(const model::Stats& from, model::Stats* to) {
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

}  // namespace octavo::engine
