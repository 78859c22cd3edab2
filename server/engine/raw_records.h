#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device.h"
#include "server/engine/resolve.h"

namespace octavo::engine {

/// How the raw records of a volume lie in its memory, and in which blocks they came: what it takes to run the chain over them again
/// just as the scan did. Positions count records of the chain (the means of record_average raw ones), record_bytes each. The
/// volume's own records lie in place at the beginning, flyback included; what else its blocks held, and the last records before
/// its first block, lie behind them. Immutable once the volume is held.
struct RawRecords {
  struct Piece {
    int64_t at = 0, records = 0;
  };
  /// Records of a block that were placed with one call of the chain.
  struct Segment {
    int64_t in_block = 0;      // of its first record
    int64_t first_record = 0;  // within the volume
    int64_t records = 0;
  };
  struct Block {
    int64_t records = 0;
    std::vector<Piece> pieces;  // in order, `records` in all
    std::vector<Segment> segments;
  };
  int64_t record_bytes = 0, volume_records = 0, volume_index = 0;
  std::vector<Piece> lead;  // oldest first
  int64_t lead_records = 0;
  bool lead_is_all = false;  // there were no records before those
  std::vector<Block> blocks;
  bool whole_blocks = true;  // false: records of no volume that came in its blocks did not fit; a rolling background may differ
  std::vector<std::pair<int64_t, int64_t>> missing_ascans;  // first, count

  /// The longest rolling background, in records, that can be computed as the scan would have.
  int64_t MostWindowRecords() const;
};

/// Copies the raw records of a scan's volumes on the device, beside the chain. Used by the compute thread; enqueues only.
class RawRecorder {
 public:
  /// Device memory of one raw volume; the part of it that clients see.
  static int64_t SlotBytes(const ResolvedScan& scan);
  static int64_t VolumeBytes(const ResolvedScan& scan);
  /// Device memory for the records before a volume.
  static int64_t HistoryBytes(const ResolvedScan& scan);
  /// What a raw volume is, less name, times and state: [line, record, sample] in the order of acquisition, flyback included; packed
  /// samples as bytes.
  static VolumeStatus Describe(const ResolvedScan& scan);

  static absl::StatusOr<std::unique_ptr<RawRecorder>> Create(const ResolvedScan& scan, Device& device);

  /// A block is on the device: Place and EndVolume speak of it until EndBlock.
  void BeginBlock(const void* raw, int64_t records);
  /// A volume begins within the block; `memory`: SlotBytes, null = not recorded.
  absl::Status BeginVolume(StreamRef stream, void* memory, int64_t volume_index);
  /// Records of the block from `raw` on belong to the volume from its record `first_record` on; the chain is given `processed` of them.
  absl::Status Place(StreamRef stream, const void* raw, int64_t first_record, int64_t records, int64_t processed);
  /// No more of the volume will come. Records that did not come are zeros.
  absl::StatusOr<std::shared_ptr<const RawRecords>> EndVolume(StreamRef stream, const std::vector<std::pair<int64_t, int64_t>>& missing_ascans);
  absl::Status EndBlock(StreamRef stream);
  /// Ranges of the volume's records that did not come, in records of the source. Of the volume that ended last.
  const std::vector<std::pair<int64_t, int64_t>>& missing_records() const { return missing_; }

 private:
  RawRecorder(const ResolvedScan& scan, Device& device);
  absl::Status KeepRest(StreamRef stream);
  absl::Status Copy(StreamRef stream, int64_t to, const uint8_t* from, int64_t records);

  Device& device_;
  const int64_t record_bytes_, volume_records_, history_records_, side_records_, average_;
  DeviceBuffer history_;  // ring of the last history_records_
  int64_t history_next_ = 0, seen_ = 0;

  const uint8_t* block_ = nullptr;
  int64_t block_records_ = 0;

  uint8_t* memory_ = nullptr;  // of the volume being recorded
  std::shared_ptr<RawRecords> records_;
  int64_t side_used_ = 0;
  struct Placed {
    int64_t in_block, first_record, records, processed;
  };
  std::vector<Placed> placed_;                        // of the block
  std::vector<std::pair<int64_t, int64_t>> came_;     // of the volume: first, count, ascending
  std::vector<std::pair<int64_t, int64_t>> missing_;  // first, count
};

}  // namespace octavo::engine
