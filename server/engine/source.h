#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/base/clock.h"
#include "gpu/dtype.h"
#include "server/engine/scan_spec.h"

namespace octavo::engine {

/// What a source delivered into a slot.
struct SourceBlock {
  int64_t first_record = 0;  // counted from the start of the scan; a jump means records were lost before it
  int64_t records = 0;       // 0 = the source has ended
  TimePoint acquired;        // when its last record was there
};

/// Where raw records come from. Used by one thread (the scan's acquisition thread).
class Source {
 public:
  virtual ~Source() = default;
  /// Fills `slot` ([max_records, S, channels] of raw_type, or packed) with the next records; waits for them until `stop`. A stop returns what
  /// there is (perhaps 0 records).
  virtual absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) = 0;
  /// The next `records` records are lost (no slot was free): waits until their time has passed. Only if !CanWait().
  virtual absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token stop) = 0;
  /// Whether the source waits without loss while no slot is free (files, simulation as fast as possible).
  virtual bool CanWait() const = 0;
};

/// What opening a source tells of it, before any record is read.
struct SourceTraits {
  int64_t samples_per_record = 0;
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
  double record_rate_hz = 0;           // 0 = as fast as possible
  double full_scale_counts = 0;        // largest raw value (ADC range); 0 = unknown
  int64_t total_records = 0;           // 0 = unbounded
  std::vector<double> wavelength_nm;   // [S] if the source knows its spectrometer
};

/// Checks source parameters and opens files; reads no records. InvalidArgument names the field ("simulated.bandwidth_nm",
/// "replay.path"); NotFound, PermissionDenied for files; paths are confined to `replay_roots`. Replay: .npy (u1, u2, i2, f4,
/// C order, last axis = samples) or raw (needs acquisition.samples_per_record and raw_type; a size that is no whole number of
/// records is refused).
absl::StatusOr<SourceTraits> InspectSource(const ScanSpec& spec, const std::vector<std::string>& replay_roots);

/// Opens the source of a resolved spec (resolve.h). `clock` must outlive it.
absl::StatusOr<std::unique_ptr<Source>> OpenSource(const ScanSpec& resolved, const std::vector<std::string>& replay_roots,
                                                   const Clock* clock);

}  // namespace octavo::engine
