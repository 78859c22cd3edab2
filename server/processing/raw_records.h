#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"

namespace octavo::processing {

/// The layout of a volume's raw records in its memory, with all that is needed to run the chain
/// over them exactly as the scan did. Positions count records of the chain (the means of
/// record_average raw ones), record_bytes each. The volume's own records, with flyback, are at the
/// beginning in their order; the last records before the volume follow them. Immutable once the
/// volume is held.
struct RawRecords {
  struct Run {
    /// Number of the first record: within the scan for the records before the volume, else within
    /// the volume.
    int64_t first = 0;
    int64_t records = 0;
  };
  int64_t record_bytes = 0, volume_records = 0, volume_index = 0;
  int64_t active_records = 0;  // one past the last record that carries an A-scan
  std::vector<Run> lead;       // oldest first, consecutive from volume_records on
  bool lead_is_all = false;    // earlier records do not count
  std::vector<Run> came;       // ascending; all other records are zeros
  std::vector<std::pair<int64_t, int64_t>> missing_ascans;  // first, count

  /// The longest window of a rolling background with such groups that can be computed exactly as in
  /// the scan.
  int64_t MostWindowRecords(int64_t group_records) const;
};

/// Copies the raw records of a scan's volumes on the device, beside the chain. Used by the compute
/// thread; enqueues only.
class RawRecorder {
 public:
  /// Device memory of one raw volume; the part of it that clients see.
  static int64_t SlotBytes(const model::ResolvedScan& scan);
  static int64_t VolumeBytes(const model::ResolvedScan& scan);
  /// Device memory for the records before a volume.
  static int64_t HistoryBytes(const model::ResolvedScan& scan);
  /// The description of a raw volume, without name, times and state: [line, record, sample] in the
  /// order of acquisition, flyback included; packed samples as bytes.
  static model::VolumeStatus Describe(const model::ResolvedScan& scan);

  static absl::StatusOr<std::unique_ptr<RawRecorder>> Create(const model::ResolvedScan& scan,
                                                             Device& device);

  /// A volume begins; `memory`: SlotBytes, null = not recorded.
  absl::Status BeginVolume(StreamRef stream, void* memory, int64_t volume_index,
                           int64_t active_records);
  /// Records arrived, in order: of the volume that began last, or of one that has ended.
  absl::Status Take(StreamRef stream, const void* raw, int64_t volume_index, int64_t first_record,
                    int64_t records);
  /// No more records of the volume will come. Missing records are zeros.
  absl::StatusOr<std::shared_ptr<const RawRecords>> EndVolume(
      StreamRef stream, const std::vector<std::pair<int64_t, int64_t>>& missing_ascans);
  /// Excludes all earlier records from every later window.
  void Forget();
  /// Ranges of missing records of the volume that ended last, in records of the source.
  const std::vector<std::pair<int64_t, int64_t>>& missing_records() const { return missing_; }

 private:
  RawRecorder(const model::ResolvedScan& scan, Device& device);
  absl::Status Copy(StreamRef stream, int64_t to, const uint8_t* from, int64_t records);
  absl::Status Remember(StreamRef stream, const uint8_t* from, int64_t number, int64_t records);

  Device& device_;
  const int64_t record_bytes_, volume_records_, history_records_, average_;
  DeviceBuffer history_;  // ring of the last history_records_
  int64_t history_next_ = 0, seen_ = 0, held_ = 0;
  std::deque<RawRecords::Run> runs_;  // the held_ records in it, oldest first

  uint8_t* memory_ = nullptr;  // of the volume being recorded
  std::shared_ptr<RawRecords> records_;
  std::vector<std::pair<int64_t, int64_t>> missing_;  // first, count
};

}  // namespace octavo::processing
