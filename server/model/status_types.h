#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/base/clock.h"
#include "gpu/base/reason.h"
#include "gpu/device/dtype.h"
#include "server/model/scan_spec.h"
#include "server/security/owner.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/formats/volume_meta.h"

namespace octavo::processing {
struct RawRecords;  // raw_records.h
}  // namespace octavo::processing

// The status of scans, volumes and devices. These are copies: they do not change while a caller
// reads them.
namespace octavo::model {

struct ResolvedScan;  // resolve_scan.h

enum class ScanState : uint8_t {
  kQueued = 1,
  kRunning = 2,
  kDraining = 3,
  kDone = 4,
  kFailed = 5,
  kCancelled = 6,
  kLost = 7  // of an earlier daemon, which died before the scan's end
};
enum class VolumeState : uint8_t {
  kAcquiring = 1,
  kHeld = 2,
  kCommitting = 3,
  kCommitted = 4,
  kDiscarded = 5,
  kFailed = 6
};

const char* Name(Tier tier);  // "DISK"
/// The present move of a held volume's memory: to another tier, back to its device, or to another
/// slot of its device, because a process does not return the present one.
enum class Move : uint8_t { kNone, kSpilling, kRestoring, kRelocating };
const char* Name(Move move);  // "SPILLING"; empty for kNone
/// What the voxels of a volume are, if not its `value`; files have its name. Values as in
/// octavo.v1.Quantity.
enum class Quantity : uint8_t {
  kNone,
  kRawSpectra,
  kRawSpectraU12p,
  kRawSpectraU12Packed,
  kSpeckleVariance,
  kAmplitudeDecorrelation,
  kPhaseRad,
  kAttenuation,
  kSum,
  kMin,
  kMax,
  kMean,
  kStd,
  kPercentile,
  kCount,
  kSpectrum,
  kScaled,
  kConstant,
  kDerivative,
  kLogarithm,
  kExponential,
  kMask,
  kIndex,
  kLineIntegral,
  kTransmission
};
const char* Name(Quantity quantity);  // "speckle_variance"; empty for kNone
/// The quantity with this name, or nullopt if there is none.
std::optional<Quantity> QuantityNamed(const std::string& name);
inline Tier TierOf(OnFull on_full) {
  return on_full == OnFull::kSpillHost ? Tier::kHost : Tier::kDisk;
}

const char* Name(ScanState state);    // "RUNNING"
const char* Name(VolumeState state);  // "HELD"
inline bool IsFinal(ScanState s) { return s >= ScanState::kDone; }

enum class EventKind : uint8_t {  // as octavo.v1.ScanEvent.Kind
  kNone = 0,
  kState = 1,
  kStarted = 2,
  kVolumeStarted = 3,
  kVolumeDone = 4,
  kVolumeState = 5,
  kInterrupted = 6,
  kFinished = 7,
  kProcessing = 8,
  kGap = 9,
  kMarker = 10,
  kSource = 11,
  kVolumeDropped = 12,
  kExpiring = 13
};

/// All fields as in octavo.v1.ScanEvent.
struct ScanEvent {
  EventKind kind = EventKind::kNone;
  uint64_t number = 0;
  std::string text;
  int64_t volume_index = -1, record = -1, count = 0;
  std::string marker;
  TimePoint time;
  std::optional<ScanState> scan_state;
  std::optional<VolumeState> volume_state;
  std::optional<Tier> tier;
};

/// All fields as in octavo.v1.SourceStatus.
struct SourceCounts {
  int64_t records = 0, gaps = 0, lost_records = 0, duplicate_records = 0, out_of_range_records = 0,
          connections = 0;
  int64_t late_records = 0;  // of duplicate_records
  bool connected = false;
  int64_t frames = 0, frames_lost = 0, frames_broken = 0;
  int64_t overruns = 0, overrun_records = 0, broken_blocks = 0;
  int64_t ignored_markers = 0;
  bool ring = false;  // of a producer's ring
};

/// All fields as in octavo.v1.Scan.
struct ScanStatus {
  std::string name;
  uint64_t number = 0;  // in the order they were submitted; of a list only
  ScanSpec spec;        // resolved
  ScanState state = ScanState::kQueued;
  std::string reason;
  Reason reason_code = Reason::kNone;
  TimePoint created, started, ended;
  int64_t records = 0;
  int64_t volumes_done = 0, volumes_held = 0, volumes_dropped = 0, volumes_overwritten = 0;
  int64_t volumes_committed = 0, volumes_discarded = 0, commit_failures = 0;
  int64_t blocks_dropped = 0, missing_ascans = 0, duplicate_records = 0, out_of_range_records = 0,
          non_finite_records = 0;
  std::string device;
  std::vector<std::string> spread_devices;  // home first; empty: only `device`
  double records_per_second = 0, volumes_per_second = 0, bytes_per_second = 0, ring_occupancy = 0;
  int64_t current_volume = -1;
  double current_fraction = 0;
  std::vector<std::string> volumes;
  std::string plan;
  int64_t queue_position = 0;
  std::vector<ScanEvent> events;  // the last 64, oldest first
  uint64_t event_count = 0;
  SourceCounts source;
  int64_t volumes_spilled = 0, volumes_expired = 0, spill_failures = 0;
  std::vector<std::string> warnings;
  int64_t voxels = 0, clipped_below = 0, clipped_above = 0;
  bool earlier_run = false;  // of an earlier daemon: what its history says
};

/// The reason why a scan has had no progress for two seconds, for people: "a client that pushes its
/// records"; empty = none.
std::string WaitsFor(const ScanStatus& scan);

/// The description of a volume: its origin and the meaning of its voxels. Fixed once the volume is
/// sealed. Fields as in octavo.v1.Volume.
struct VolumeDescription {
  std::string name, title;
  std::string scan;  // the scan that its records came from; of other jobs' volumes: the job
  int64_t index = 0;
  int64_t shape[3] = {0, 0, 0};
  DType dtype = DType::kU8;
  double spacing_um[3] = {1, 1, 1};
  bool spacing_assumed[3] = {};  // per axis: the spacing was not given, spacing_um counts voxels
  // Per axis: it was transformed (FftOp), and spacing_um counts cycles per um, or per voxel if the
  // spacing was not given.
  bool spacing_inverse[3] = {};
  std::string axes[3] = {"y", "x", "z"};  // as octavo.v1.Volume.axes
  bool has_levels = false;
  float level_lo = 0, level_hi = 0;
  ValueKind value = ValueKind::kDb;
  int64_t clipped_below = 0, clipped_above = 0;
  TimePoint acquired_begin, acquired_end;
  bool complete = false;
  int64_t missing_ascans = 0;
  std::vector<std::pair<int64_t, int64_t>> missing;               // first 32 ranges: first, count
  int64_t missing_frames = 0, expected_frames = 0;                // of pushed projections
  std::vector<std::pair<int64_t, int64_t>> missing_frame_ranges;  // first 32: first, count
  std::vector<std::string> spread_devices;  // computed it, home first; empty: only `device`
  int64_t bytes = 0;
  std::string digest;
  std::map<std::string, std::string> labels;
  /// All missing ranges; null: those of `missing` are all.
  std::shared_ptr<const std::vector<std::pair<int64_t, int64_t>>> all_missing;
  std::string derived_from;               // name of its source volume; empty: acquired
  std::vector<std::string> operations;    // the operations on the source volume, in words
  std::string chain;                      // the entry of ScanSpec.chains that made it, if any
  Quantity quantity = Quantity::kNone;    // what the voxels are, if not `value`
  double display_lo = 0, display_hi = 0;  // of derived quantities; both 0: those of the origin
  double ttl_seconds = 0;                 // discarded this long after its seal; 0 = never
  double ttl_warning_seconds = 0;
  std::string session;     // of the scan's client
  security::Owner owner;   // of the scan, the job or the derivation
  bool recovered = false;  // found in the spill directory at start
  /// The metadata for the files of a recovered volume, whose scan is unknown, and of volumes
  /// derived from it. Else null.
  std::shared_ptr<const storage::VolumeMeta> recovered_meta;
  std::shared_ptr<const processing::RawRecords>
      raw;  // raw spectra: how they came; null for all other volumes, and while being acquired
  bool is_raw = false;                    // raw spectra (Retention.hold_raw)
  Orphan job_orphan = Orphan::kDefault;   // JobSpec.orphan
  std::string job, job_kind;              // the job that made it; empty: none
  std::vector<std::string> job_warnings;  // warnings of the ended job

  /// Whether the spacing of the axis is a length on the sample, in um.
  bool IsLength(int axis) const { return !spacing_assumed[axis] && !spacing_inverse[axis]; }
};

/// What made a volume, as octavo.v1.Volume.parent: its job, else its scan.
inline const std::string& ParentOf(const VolumeDescription& volume) {
  return volume.job.empty() ? volume.scan : volume.job;
}

/// A chain of ScanSpec.chains that made nothing of a volume, as octavo.v1.SkippedChain.
struct SkippedChain {
  std::string chain;
  Reason reason_code = Reason::kNone;
  std::string reason;
};

/// A volume's description and its state so far. All fields as in octavo.v1.Volume.
struct VolumeStatus : VolumeDescription {
  uint64_t number = 0;    // in order of arrival
  uint64_t revision = 0;  // counts its changes
  VolumeState state = VolumeState::kAcquiring;
  Reason reason_code = Reason::kNone;
  std::string reason;
  std::string device;
  int64_t stripe_bscans = 0;  // > 0: striped over spread_devices, so many neighbouring B-scans on
                              // each in turn (stripe_layout.h)
  bool has_commit = false;
  storage::CommitOutcome commit;
  std::string last_error;
  std::vector<SkippedChain> skipped_chains;
  double held_seconds = 0;
  int64_t held_unix_ns = 0;  // since when it is held; 0 = not yet
  bool kept = false;
  Tier tier = Tier::kDevice;
  Move moving = Move::kNone;
  double expires_seconds = 0;   // until its time to live ends; 0 = never
  int64_t expires_unix_ns = 0;  // likewise
  bool orphaned = false;        // the session has expired, and the orphan policy was applied
  bool marked = false;          // HoldVolume
  bool mirrored = false;        // a copy lies in the tier DISK, and the bytes in another
  int64_t shared_leases = 0;
  // Only while it is in memory:
  std::shared_ptr<const ResolvedScan> origin;  // its acquisition and processing
  std::shared_ptr<const pattern::Pattern>
      recovered_pattern;       // as recovered_meta: how its A-scans lie; null: not known
  std::string job_parameters;  // parameters of the job that made it, as JSON
};

/// What a scan or job needs memory for. Values as in octavo.v1.AdmissionReport.Item.Kind.
enum class NeedKind : uint8_t {
  kNone,
  kVolumeSlots,
  kVolumeParts,
  kTravellingBscans,
  kRawVolumeSlots,
  kRawHistory,
  kRawBlocks,
  kChainWorkspace,
  kProjectionScratch,
  kAngiogram,
  kPlacementTable,
  kChainResults,
  kChainScratch,
  kResult,
  kWorkspace,
  kDerivedVolume,
  kDerivationScratch,
  kRestoredVolume,
  kBuffer,
  kOperation,
  kMeasurement
};
/// What holds memory. Values as in octavo.v1.AdmissionReport.Holder.Kind.
enum class HolderKind : uint8_t {
  kNone,
  kRunningScan,
  kRunningJob,
  kHeldVolume,
  kClientBuffer,
  kCached,
  kDetached
};
const char* Name(HolderKind kind);  // "running scan"

/// All fields as in octavo.v1.AdmissionReport.
struct AdmissionReport {
  struct Item {
    NeedKind kind = NeedKind::kNone;
    int64_t bytes = 0;
    int64_t count = 1;
    std::string chain = {};  // kChainResults: its name
  };
  struct Holder {
    std::string name;
    HolderKind kind = HolderKind::kNone;
    int64_t bytes = 0;
    std::string title;
  };
  bool admitted = false;
  std::string device;
  int64_t wanted_bytes = 0, free_bytes = 0, budget_bytes = 0;
  std::vector<Item> needs;
  std::vector<Holder> holders;
  std::string advice;
  bool retryable = true;
  int64_t volume_bytes = 0, run_bytes = 0;
  double seconds_to_memory_full = 0, volumes_per_second = 0;
  int64_t disk_free_bytes = 0;
  double seconds_to_disk_full = 0;
  int64_t pinned_bytes = 0;
  int64_t spill_free_bytes = 0;
  double seconds_to_spill_full = 0;
};

/// All fields as in octavo.v1.DeviceStatus.
struct DeviceStatus {
  int number = 0;
  std::string name, backend, model, uuid;
  bool healthy = true;
  std::string reason;
  int64_t total_bytes = 0, budget_bytes = 0, reserved_bytes = 0, held_bytes = 0, used_bytes = 0,
          cached_bytes = 0, detached_bytes = 0, free_bytes = 0;
  int running_scans = 0, running_jobs = 0;
  int64_t buffer_bytes = 0, peak_bytes = 0, imported_bytes = 0;
};

/// All fields as in octavo.v1.Memory.TierUse.
struct TierUse {
  Tier tier = Tier::kHost;
  int64_t quota_bytes = 0, used_bytes = 0, volumes = 0;
  std::string path;
  int64_t disk_free_bytes = 0, spilled_bytes = 0, restored_bytes = 0, failures = 0;
  int64_t mirrors = 0, mirror_bytes = 0;
  // Of DISK: held volumes that are not on it, and whose bytes nothing overwrites.
  int64_t unmirrored = 0, unmirrored_bytes = 0;
};

/// All fields as in octavo.v1.Memory.
struct MemoryStatus {
  struct Holder {
    AdmissionReport::Holder holder;
    std::string device, session;
  };
  std::vector<DeviceStatus> devices;
  std::vector<Holder> holders;
  std::vector<TierUse> tiers;
};

}  // namespace octavo::model
