#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/model/status_types.h"

namespace octavo::model {

/// Distribution of durations: counts per bucket with upper bounds kSecondsBounds, the last bucket
/// unbounded.
inline constexpr std::array<double, 14> kSecondsBounds = {1e-5, 1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2,
                                                          2e-2, 5e-2, 0.1,  0.5,  1,    5,    30};
struct Histogram {
  std::array<int64_t, kSecondsBounds.size() + 1> counts{};
  int64_t count = 0;
  double sum = 0;
  void Add(double seconds);
  void Merge(const Histogram& other);
};

/// Everything the metrics page shows, copied at one moment. Keys of maps are label values; the
/// exporter folds those that it does not know into "other".
struct Stats {
  std::map<std::string, int64_t> scans_by_state;  // "RUNNING" → n
  std::map<std::string, int64_t> scans_finished;  // by reason code
  std::map<std::string, int64_t> scans_rejected;  // by reason
  int64_t scans_resumed = 0;                      // of earlier daemons, begun again by this one
  int64_t scans_not_resumed = 0;  // of earlier daemons, which this one was to begin again
  int64_t records = 0;
  std::map<std::string, int64_t> blocks_dropped;         // by reason: "overrun"
  std::map<std::string, int64_t> records_without_place;  // by reason: "duplicate", "out_of_range"
  int64_t records_not_finite = 0, source_overruns = 0;
  int64_t ring_producers = 0, ring_blocks_broken = 0;
  std::map<std::string, int64_t>
      source_records_lost;  // by reason: "gap", "overrun", "duplicate", "out_of_range"
  std::map<std::string, int64_t> camera_frames_lost;  // by reason: "lost", "broken"
  double ring_occupancy = 0;                          // largest of the running scans, 0 ... 1
  std::map<std::string, Histogram>
      stage_seconds;                 // "wait", "upload", "process", "download", "publish"
  Histogram volume_latency_seconds;  // last record in host memory → volume held
  std::map<std::string, Histogram> frame_latency_seconds;  // by product: last record → published
  std::map<std::string, int64_t> volumes_by_state;
  std::map<std::string, int64_t>
      volumes_finished;        // committed, discarded, failed, dropped, overwritten, expired
  int64_t chains_skipped = 0;  // derived volumes that scans asked for and did not get
  int64_t missing_ascans = 0;
  int64_t voxels = 0;  // of completed volumes
  std::map<std::string, int64_t> voxels_clipped{
      {"above", 0}, {"below", 0}};  // clipped voxels, by the limit they passed
  double oldest_held_seconds = 0;
  Histogram commit_seconds;
  int64_t commit_bytes = 0;
  std::map<std::string, int64_t> commit_errors;       // by reason
  std::map<std::string, int64_t> operations_running;  // by kind; those that clients have begun
  std::map<std::pair<std::string, std::string>, int64_t> operations_finished;  // (kind, state)
  int64_t operations_kept = 0, operations_forgotten = 0;  // of those that have ended
  std::map<std::string, int64_t> subscribers;             // by product
  std::map<std::string, int64_t> frames_published;        // by product
  std::map<std::string, int64_t> frames_sent;             // by product, taken by subscribers
  std::map<std::pair<std::string, std::string>, int64_t> frames_dropped;  // (product, policy)
  std::map<std::string, int64_t> streams_cut;                             // by reason
  std::map<std::string, int64_t> allocation_failures;                     // by device
  std::map<std::string, int64_t> admission_refusals;                      // by reason
  std::map<std::string, int64_t> quota_refusals;                          // by kind
  std::map<std::string, int64_t> volumes_by_tier;                   // held ones: "DEVICE" → n
  std::map<std::string, Histogram> spill_seconds, restore_seconds;  // by tier
  int64_t mirror_failures = 0;
  int64_t mirror_room_bytes = 0;  // for more of them
  int64_t mark_failures = 0;      // marks that could not be written into the files of volumes
  std::vector<TierUse> tiers;
  int64_t sessions = 0, sessions_expired = 0;
  int64_t grants = 0;                     // that have not ended
  std::map<std::string, int64_t> leases;  // now, by mode, and "waiting"
  int64_t leases_granted = 0, leases_expired = 0, lease_refusals = 0, lease_waits = 0;
  double lease_wait_seconds = 0;
  std::map<std::string, int64_t> jobs_by_state;                          // "RUNNING" → n
  std::map<std::pair<std::string, std::string>, int64_t> jobs_finished;  // (kind, reason)
  Histogram job_queue_seconds;                                           // submitted → begun
  std::map<std::string, Histogram> job_run_seconds;                      // by kind: begun → ended
  std::vector<DeviceStatus> devices;
  struct History {  // rows
    bool on = false, failing = false;
    int64_t written = 0, dropped = 0, errors = 0, waiting = 0;
  } history;
  struct Audit {  // lines
    bool on = false, failing = false;
    int64_t written = 0, dropped = 0, left_out = 0, errors = 0, waiting = 0;
  } audit;
  struct Buffers {       // of clients
    int64_t count = 0;   // now
    int64_t owners = 0;  // clients that have at least one
    // bytes of the client with the most, over all devices
    int64_t largest_owner_bytes = 0;
    int64_t quota_bytes = 0;                         // an owner's; 0 = no limit
    std::map<std::string, int64_t> replicas, bytes;  // now, by device; without imported ones
    int64_t imports = 0;                             // now: memory that clients lend
    std::map<std::string, int64_t> imported_bytes;   // now, by device: its size
    int64_t written_bytes = 0, read_bytes = 0;       // from and to clients
    int64_t forwarded_bytes = 0;                     // from device to device
    int64_t operations = 0;                          // ApplyOp
    std::map<std::string, int64_t> gone;             // by reason: "destroyed", "expired", "revoked"
    std::map<std::string, int64_t> refusals;         // by reason, as in errors
  } buffers;
};

}  // namespace octavo::model
