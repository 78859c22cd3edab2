#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.h"
#include "gpu/dtype.h"
#include "gpu/math/placement.h"
#include "gpu/math/spectral.h"

namespace octavo {

/// The spectral chain (raw records → A-scans) with every table resolved to numbers; gpu/spectral_design.h makes the tables.
/// Steps and equations: background, k-linearisation, window × dispersion, inverse DFT (1/F), value, levels.
struct SpectralConfig {
  // -- records in
  int64_t samples_per_record = 0;        // S, 16 ... 65536
  DType raw_type = DType::kU16;          // kU8, kU16, kI16, kF32
  int64_t max_records_per_block = 0;     // most records of one Process call, >= 1
  // -- step 1
  math::Background background = math::Background::kNone;
  std::vector<float> background_spectrum;   // [S] for kStatic
  int64_t background_window_records = 0;    // M for kRolling, >= 1
  // -- step 2
  math::Interpolation interpolation = math::Interpolation::kNone;
  std::vector<float> k_index;            // [N], 0 ... S-1, non-decreasing; empty with kNone (N = S)
  // -- step 3
  std::vector<float> window;             // [N]
  std::vector<float> phase_rad;          // [N]; empty = no dispersion
  // -- step 4
  int64_t fft_length = 0;                // F >= N, of factors 2, 3, 5
  int64_t first_bin = 0;                 // 0 ... F-1
  int64_t depth = 0;                     // D, first_bin + D <= F
  // -- steps 6, 7
  math::Value value = math::Value::kDb;
  bool has_levels = false;               // required for integers
  float level_lo = 0, level_hi = 0;      // lo < hi
  DType output = DType::kU8;             // kU8, kU16, kF32
  // -- products of the same pass, over the depth samples [slab_begin, slab_end) of what is stored
  int64_t slab_begin = 0, slab_end = 0;  // 0 <= begin < end <= D; both 0 = all
};

/// Where the A-scans of one call go: device memory of one volume. Null pointers: not wanted.
struct SpectralTarget {
  void* volume = nullptr;         // [ascans, D] of config.output
  int64_t volume_ascans = 0;      // placements outside 0 ... volume_ascans-1 are dropped
  void* mip = nullptr;            // [ascans] of config.output: maximum over the slab, as stored; NaN ignored
  float* aip = nullptr;           // [ascans]: mean over the slab of the numbers as stored
};

/// Which A-scan each record of a call becomes.
struct RecordPlacement {
  math::RasterPlacement raster{};       // used unless `table` is given
  int64_t first_record = 0;             // position within the volume of the call's first record (raster)
  const int32_t* table = nullptr;       // device memory [records]: A-scan index or -1; overrides the raster
};

/// Backend part of a plan: device tables, FFT plan, workspaces. One stream at a time.
class SpectralPlan {
 public:
  virtual ~SpectralPlan() = default;
  /// Enqueues step 1's update from a new block: the background becomes the mean of the last M records. Rolling only.
  virtual absl::Status UpdateBackground(StreamRef stream, const void* raw, int64_t records) = 0;
  /// Enqueues steps 1 to 7 for `records` records at device memory `raw` [records, S] and places the results.
  virtual absl::Status Process(StreamRef stream, const void* raw, int64_t records, const RecordPlacement& placement,
                               const SpectralTarget& target) = 0;
  virtual int64_t device_bytes() const = 0;     // tables and workspaces
  virtual std::string description() const = 0;  // how this backend does it: "three launches, cuFFT C2C 1024 x 4096"
};

/// Operator family: what each backend provides. The config was validated by SpectralProcessor.
class SpectralOps {
 public:
  virtual ~SpectralOps() = default;
  virtual absl::StatusOr<std::unique_ptr<SpectralPlan>> CreatePlan(const SpectralConfig& config) = 0;
  /// Bytes a plan of `config` will allocate on the device; an upper bound. Allocates nothing.
  virtual int64_t PlanBytes(const SpectralConfig& config) = 0;
};

/// A validated chain on one device. Create allocates; Run only enqueues and allocates nothing.
class SpectralProcessor {
 public:
  /// InvalidArgument names the field (as in SpectralConfig), the value and what is allowed.
  static absl::Status Validate(const SpectralConfig& config);
  static absl::StatusOr<std::unique_ptr<SpectralProcessor>> Create(const SpectralConfig& config, Device& device);

  /// Enqueues what must happen once per block, before its Process calls: the rolling background. Does not synchronise.
  absl::Status BeginBlock(StreamRef stream, const void* raw, int64_t records);
  /// Enqueues the chain for a part of a block that falls into one volume. Does not synchronise: raw, target and
  /// placement.table must live until `stream` passes this point.
  absl::Status Process(StreamRef stream, const void* raw, int64_t records, const RecordPlacement& placement,
                       const SpectralTarget& target);
  int64_t device_bytes() const { return plan_->device_bytes(); }
  /// The steps in words, one a line, and how the backend does them.
  std::string Describe() const;
  const SpectralConfig& config() const { return config_; }

 private:
  SpectralProcessor(SpectralConfig config, std::unique_ptr<SpectralPlan> plan);
  SpectralConfig config_;
  std::unique_ptr<SpectralPlan> plan_;
};

/// The steps of `config` in words, one a line (what Describe says less the backend's line).
std::string DescribeChain(const SpectralConfig& config);

}  // namespace octavo
