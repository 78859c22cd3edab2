#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/buffer.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"
#include "gpu/math/placement.h"
#include "gpu/math/raw.h"
#include "gpu/math/spectral.h"
#include "gpu/spectral/rolling_window.h"

namespace octavo::inline gpu {

/// The spectral chain (raw records → A-scans) with every table resolved to numbers;
/// gpu/spectral/spectral_design.h makes the tables. Steps and equations: background,
/// k-linearisation, window × dispersion, inverse DFT (1/F), fixed pattern, value, levels. A record
/// is the mean of `record_average` raw records; all counts below are counts of such records.
struct SpectralConfig {
  // -- records in: [record, average, S, C]
  int64_t samples_per_record = 0;                // S, 16 ... 65536
  DType raw_type = DType::kU16;                  // kU8, kU16, kI16, kF32
  math::Packing packing = math::Packing::kNone;  // packed 12 bits: raw_type is kU16
  int64_t channels = 1;        // C interleaved, 1 ... 16; samples times channels at most 65536
  int64_t channel = 0;         // the one that is processed
  int64_t record_average = 1;  // raw records of a record, 1 ... 256
  int64_t max_records_per_block = 0;  // most records of one Process call, >= 1
  int64_t bscan_records =
      0;  // most A-scans of a B-scan; needed by kBscan and fixed_pattern, else 0
  // Groups of a rolling background begin anew with each volume. 0 = one endless volume. With a
  // number, callers may cut the records into calls at any place without changing a bit of the
  // result: the processor keeps records that a backend processes together until all of them have
  // arrived, and EndVolume ends each volume.
  int64_t volume_records = 0;
  // -- step 1
  math::Background background = math::Background::kNone;
  std::vector<float> background_spectrum;  // [S] for kStatic
  // For kRolling (gpu/spectral/rolling_window.h).
  int64_t background_group_records = 0;   // 1 ... 2^20, at most volume_records
  int64_t background_window_records = 0;  // 0 (the group) ... 2^20, at most 4096 groups
  // -- step 2
  math::Interpolation interpolation = math::Interpolation::kNone;
  std::vector<double> k_index;  // [N], 0 ... S-1, non-decreasing; empty with kNone (N = S)
  // -- step 3
  std::vector<float> window;     // [N]
  std::vector<float> phase_rad;  // [N]; empty = no dispersion
  // -- step 4
  int64_t fft_length = 0;  // F >= N, at most 131072; without dispersion the real transform is used
  int64_t first_bin = 0;   // 0 ... F-1
  int64_t depth = 0;       // D, first_bin + D <= F
  // -- step 5
  math::FixedPattern fixed_pattern = math::FixedPattern::kNone;
  // -- steps 6, 7
  math::Value value = math::Value::kDb;
  int64_t repeats = 1;  // repeats of an A-scan, averaged as linear power; 1 ... 4096
  int64_t repeat_ascans =
      0;  // neighbouring A-scans that are repeated together; with repeats > 1, else 0
  bool has_levels = false;           // required for integers, not for kC64
  float level_lo = 0, level_hi = 0;  // lo < hi
  DType output = DType::kU8;         // kU8, kI8, kU16, kF16, kF32; kC64 with kComplex
  // -- products of the same pass, over the depth samples [slab_begin, slab_end) of what is stored
  int64_t slab_begin = 0, slab_end = 0;  // 0 <= begin < end <= D; both 0 = all
};

/// Destination of the A-scans of one call: device memory of one volume. A null pointer means that
/// the caller does not want that output.
struct SpectralTarget {
  void* volume = nullptr;     // [ascans, D] of config.output
  int64_t volume_ascans = 0;  // placements outside 0 ... volume_ascans-1 are dropped
  void* mip = nullptr;        // [ascans] of ProjectionOf(config.output): maximum over the slab, as
                              // stored; NaN ignored
  float* aip =
      nullptr;  // [ascans]: mean over the slab of the numbers as stored (kC64: of their magnitudes)
  // [2]: the chain adds the numbers of voxels clipped below and above the levels
  // (math::ClippedBelow, ClippedAbove). Only integer types are clipped. Each voxel of a volume
  // counts once, however often its repeats wrote it.
  uint64_t* clipped = nullptr;
};

/// One pass over one B-scan: `records` A-scans in a row.
struct BscanSpan {
  int64_t first_record = 0;  // within the volume
  int64_t records = 0;
  int64_t repeat = 0;  // neighbouring spans of one number hold no A-scan twice
};

/// The A-scan that each record of a call becomes.
struct RecordPlacement {
  math::RasterPlacement raster{};  // used unless `table` is given
  int64_t volume = 0;              // counted from the start of the scan; read for kRolling
  int64_t first_record = 0;        // position within the volume of the call's first record
  bool borrowed = false;           // another device counts these records; target null
  const int32_t* table =
      nullptr;  // device memory [records]: A-scan index or -1; overrides the raster
  // With a table and config.bscan_records or config.repeats: the volume's B-scans in the order of
  // the scan; host memory, which must live until EndVolume. Without a table the lines of the
  // raster.
  const BscanSpan* spans = nullptr;
  int64_t span_count = 0;
};

/// Records that a backend processes in one call: `runs` of `active` records each, the starts of the
/// runs `pitch` records apart. With config.bscan_records a run is a B-scan or a part of one: mean
/// and fixed pattern are those of the run.
struct RecordRuns {
  int64_t runs = 1, active = 0, pitch = 0;
  OCTAVO_HOST_DEVICE int64_t records() const { return runs * active; }
  /// Position of the i-th active record, counted from the first.
  OCTAVO_HOST_DEVICE int64_t At(int64_t i) const { return i / active * pitch + i % active; }
};

/// Sums of repeats, in device memory of config.repeat_ascans entries: entry a % repeat_ascans
/// belongs to A-scan owner[...].
struct RepeatSums {
  float* power = nullptr;    // [repeat_ascans, D]
  int32_t* owner = nullptr;  // A-scan index; -1 = none
  int32_t* count = nullptr;  // repeats in the sum
  uint32_t* clipped =
      nullptr;  // [repeat_ascans, 2]: what the A-scan's last mean added to SpectralTarget::clipped
};

/// Consecutive records whose sum is entry `entry` of the sums.
struct SumPiece {
  int32_t first = 0, records = 0, entry = 0;
};
/// Row `row` of the backgrounds is the mean over all records summed in the `entries` entries from
/// `first` on.
struct MeanOfSums {
  int32_t row = 0, first = 0, entries = 0;
};
/// Sums of kRolling's parts: entries of samples_per_record + 1 numbers, of which the last is the
/// number of records summed.
struct SumRing {
  double* sums = nullptr;  // device memory; null: no window looks back, entry i belongs to the i-th
                           // piece and is the plan's own
  int64_t entries = 0;     // of the ring
};

/// For kRolling: the most groups whose sums and means are enqueued at once, and the number of rows
/// of backgrounds. Group g of a volume has row g % rows. The rows suffice for those groups and for
/// a B-scan that waits for its end.
int64_t RollingStepGroups(const SpectralConfig& config);
int64_t RollingRows(const SpectralConfig& config);
RollingShape RollingShapeOf(const SpectralConfig& config);
inline constexpr int64_t kMostRollingStepGroups = 64;
inline constexpr int64_t kMostSumPieces =
    RollingShape::kMostParts * kMostRollingStepGroups;  // of a call
/// The most records that one call of SumRecords takes.
int64_t RollingStepRecords(const SpectralConfig& config);

/// Backend part of a plan: device tables, FFT plan, workspaces. One stream at a time.
class SpectralPlan {
 public:
  virtual ~SpectralPlan() = default;
  /// Enqueues summing the records at device memory `raw`, each piece in the order of its records.
  /// Records with a sample that is not finite are left out. kRolling only. The pieces must ascend
  /// and must not overlap.
  virtual absl::Status SumRecords(StreamRef stream, const void* raw,
                                  std::span<const SumPiece> pieces, const SumRing& ring) = 0;
  /// Enqueues computing backgrounds from sums. A background is 0 where no record was summed. Call
  /// it after SumRecords. With a null ring it uses the plan's own sums.
  virtual absl::Status MakeBackgrounds(StreamRef stream, std::span<const MeanOfSums> means,
                                       const SumRing& ring) = 0;
  /// Enqueues adding, to the first word of `count`, the number of records of `raw` with a sample
  /// that is not finite. `raw` holds whole records [record, average, S, C]. kF32 only.
  virtual absl::Status CountNonFinite(StreamRef stream, DeviceSpan<const float> raw,
                                      DeviceSpan<uint64_t> count) = 0;
  /// Enqueues steps 1 to 7 for `runs` at device memory `raw` and places the results. `sums` is used
  /// only with config.repeats > 1; in that case no two records of a call may be the same A-scan.
  virtual absl::Status Process(StreamRef stream, const void* raw, const RecordRuns& runs,
                               const RecordPlacement& placement, const SpectralTarget& target,
                               const RepeatSums& sums) = 0;
  /// Whether the plan processes records in pairs, so that the last bits of one depend on the other.
  /// A pair is a record at an even position and the next one, where both are in one call. Positions
  /// are counted in the group of a rolling background, or else in the volume.
  virtual bool pairs() const { return false; }
  virtual int64_t device_bytes() const = 0;  // tables and workspaces
  virtual std::string description()
      const = 0;  // how this backend does it: "three launches, cuFFT C2C 1024 x 4096"
};

/// Operator family that each backend provides. SpectralProcessor has validated the config.
class SpectralOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"spectral chain"};

  virtual absl::StatusOr<std::unique_ptr<SpectralPlan>> CreatePlan(
      const SpectralConfig& config) = 0;
  /// An upper bound of the bytes that a plan of `config` will allocate on the device. Allocates
  /// nothing.
  virtual int64_t PlanBytes(const SpectralConfig& config) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<SpectralOps>> MakeSpectralOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<SpectralOps>> MakeSpectralOps(Device& device);
}

/// Bytes of a record as the source delivers it: all channels, record_average raw records.
int64_t RecordBytes(const SpectralConfig& config);

/// A validated chain on one device. Create allocates; the other calls only enqueue and allocate
/// nothing.
class SpectralProcessor {
 public:
  /// InvalidArgument names the field (as in SpectralConfig), the value and what is allowed.
  static absl::Status Validate(const SpectralConfig& config);
  static absl::StatusOr<std::unique_ptr<SpectralProcessor>> Create(const SpectralConfig& config,
                                                                   Device& device);
  /// An upper bound of the bytes that Create will allocate on the device. Allocates nothing.
  static int64_t DeviceBytes(const SpectralConfig& config, Device& device);

  /// The caller must call it before the first Process of each volume. It discards the repeats of
  /// the previous volume.
  absl::Status BeginVolume(StreamRef stream);
  /// Enqueues the chain for a part of a block that falls into one volume. Does not synchronise:
  /// raw, target and placement.table must live until `stream` passes this point. With
  /// config.bscan_records, the processor copies the records of an incomplete B-scan and places them
  /// with its last record, or when a gap or EndVolume shows that no more will come. With kRolling
  /// it keeps the records of an incomplete group in the same way. The caller must then pass every
  /// received record in the order of the numbers, in calls of any length; records without an A-scan
  /// have a null target.
  absl::Status Process(StreamRef stream, const void* raw, int64_t records,
                       const RecordPlacement& placement, const SpectralTarget& target);
  /// Says that no record before record `first_record` of volume `volume` will come any more. A
  /// group that waits for such a record ends. kRolling only.
  absl::Status Advance(StreamRef stream, int64_t volume, int64_t first_record);
  /// The caller must call it after the last Process of each volume. It places the records that were
  /// kept.
  absl::Status EndVolume(StreamRef stream);

  /// The number of the first record that is kept until its group is complete, counted over all
  /// volumes; `number` if no record is kept.
  int64_t KeptFrom(int64_t number) const {
    return group_records_ > 0 ? group_runs_.front().run.first : number;
  }

  // -- kRolling
  /// Takes over the sums of `before` if both processors have the same groups and windows, and
  /// returns whether it did. `before` must live until `stream` has passed. Call it before the first
  /// record.
  absl::StatusOr<bool> Continue(StreamRef stream, SpectralProcessor& before);
  /// How the devices of one scan that use one window exchange their sums.
  struct SharedSums {
    /// Called before the processor enqueues sums: enqueues waits for the devices that still read
    /// what these sums overwrite.
    std::function<absl::Status()> before;
    /// Called after it enqueued them, with the new entries of the ring, a range that does not wrap
    /// around its end: enqueues their transfer to the other devices.
    std::function<absl::Status(int64_t first_entry, int64_t entries)> after;
  };
  /// Makes this and another device of one scan use one window. Call it before the first record.
  void ShareWindow(std::shared_ptr<RollingWindow> window, SharedSums shared);
  const std::shared_ptr<RollingWindow>& window() const { return window_; }
  /// `entries` entries of the ring of sums from entry `first` on. Null where no window looks back.
  DeviceSpan<double> SumsAt(int64_t first, int64_t entries) const {
    if (!sums_) return {};
    return sums_.span<double>().From(first * sum_length()).First(entries * sum_length());
  }
  /// Device word that counts the records of 32-bit numbers so far with a sample that is not finite.
  /// Null for other types.
  DeviceSpan<const uint64_t> non_finite_records() const { return non_finite_.span<uint64_t>(); }

  int64_t device_bytes() const;
  /// The steps in words, one per line, and how the backend does them.
  std::string Describe() const;
  const SpectralConfig& config() const { return config_; }

 private:
  SpectralProcessor(SpectralConfig config, Device& device, std::unique_ptr<SpectralPlan> plan);
  bool rolling() const { return config_.background == math::Background::kRolling; }
  int64_t sum_length() const {
    return config_.samples_per_record + 1;
  }  // numbers of a ring's entry
  absl::Status ProcessGroups(StreamRef stream, const uint8_t* raw, int64_t records,
                             const RecordPlacement& placement, const SpectralTarget& target);
  absl::Status KeepOfGroup(StreamRef stream, const uint8_t* raw, int64_t records,
                           const RecordPlacement& placement, const SpectralTarget& target);
  absl::Status EndGroup(StreamRef stream);
  struct GroupRun {                  // records that came in a row
    int64_t first = 0, records = 0;  // number
    int64_t at = 0;                  // in memory, in records
  };
  void AddGroup(int64_t begin, int64_t end, std::span<const GroupRun> runs);
  absl::Status EnqueueBackgrounds(StreamRef stream, const uint8_t* raw, int64_t first_record);
  absl::Status ProcessPlaced(StreamRef stream, const uint8_t* raw, int64_t records,
                             const RecordPlacement& placement, const SpectralTarget& target);
  absl::Status ProcessSpans(StreamRef stream, const uint8_t* raw, int64_t records,
                            const RecordPlacement& placement, const SpectralTarget& target);
  absl::Status Keep(StreamRef stream, const uint8_t* raw, int64_t records,
                    const RecordPlacement& placement, const SpectralTarget& target);
  absl::Status EndBscan(StreamRef stream);
  absl::Status ProcessRuns(StreamRef stream, const uint8_t* raw, const RecordRuns& runs,
                           const RecordPlacement& placement, const SpectralTarget& target);

  const SpectralConfig config_;
  const int64_t record_bytes_;
  Device& device_;
  std::unique_ptr<SpectralPlan> plan_;
  RollingShape shape_;    // of the groups that are kept until they are whole: those of the rolling
                          // background, or pairs
  bool grouped_ = false;  // whether there are any
  // The beginning of a B-scan whose end has not arrived, and its destination.
  DeviceBuffer kept_, kept_table_;
  int64_t kept_records_ = 0;
  RecordPlacement kept_placement_;
  SpectralTarget kept_target_;
  // The group whose end has not arrived, as the runs of it that have arrived.
  struct KeptRun {
    GroupRun run;
    RecordPlacement placement;
    SpectralTarget target;
  };
  DeviceBuffer group_, group_table_;
  std::vector<KeptRun> group_runs_;
  int64_t group_records_ = 0, group_end_ = 0;  // records kept; one past the group's last number
  int64_t next_number_ = 0;                    // records before it came or are given up
  // Sums and means that are enqueued next.
  std::vector<SumPiece> pieces_;
  std::vector<MeanOfSums> means_;
  std::vector<GroupRun> runs_;
  std::shared_ptr<RollingWindow> window_;  // null: no window looks back
  SharedSums shared_;
  DeviceBuffer sums_, non_finite_;
  DeviceBuffer repeat_power_, repeat_owner_, repeat_count_, repeat_clipped_;
};

/// The steps of `config` in words, one per line: the text of Describe without the backend's line.
std::string DescribeChain(const SpectralConfig& config);

}  // namespace octavo::inline gpu
