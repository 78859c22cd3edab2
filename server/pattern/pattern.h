#pragma once

#include <cstdint>
#include <memory>
#include <vector>

// The path of a scanner over the sample: the server's counterpart of octavo.v1.Pattern. 0, empty
// and kDefault mean "choose"; ResolvePattern (plan.h) fills them in and checks everything.
namespace octavo::pattern {

enum class PatternKind : uint8_t {
  kRaster,
  kRepeatedRaster,
  kRadial,
  kRepeatedRadial,
  kSpiral,
  kLissajous,
  kFreeform
};
enum class RepeatStrategy : uint8_t { kDefault = 0, kPack = 1, kOrder = 2, kAverage = 3 };
enum class SpiralSampling : uint8_t { kDefault = 0, kAngular = 1, kLinear = 2 };
enum class WarpKind : uint8_t { kNone, kAngular, kTelecentric };
enum class FlybackPolicy : uint8_t { kDefault = 0, kFixed = 1, kFixedLinear = 2, kMinimumTime = 3 };

/// Limits of one axis of the scanner, in scanner units (mm without a warp, else degrees) and
/// seconds.
struct AxisLimits {
  double position_min = 0, position_max = 0;
  double velocity = 0;      // largest absolute value
  double acceleration = 0;  // largest absolute value
};

struct PatternPlan;  // plan.h

/// Segments (B-scans) of A-scans. Positions are mm in the plane of the sample, the pattern's origin
/// at its centre; A-scans lie in the middle of their pitch. Rotation about the origin, then the
/// offset.
struct Pattern {
  int64_t ascans_per_bscan = 0;  // along a segment; spiral, Lissajous: records of a stored row
  int64_t bscans_per_volume =
      0;  // distinct segments of a volume, without repeats; freeform: given by the points
  int64_t volumes = 0;          // 0 = continuous
  bool bidirectional = false;   // every second segment, in the order of the scan, runs backwards
  int64_t flyback_records = 0;  // after each segment
  int64_t volume_flyback_records = 0;  // after each volume, in addition
  double extent_x_mm = 0,
         extent_y_mm = 0;  // raster, Lissajous; else resolved to the square around the pattern

  PatternKind kind = PatternKind::kRaster;
  bool bidirectional_volumes = false;  // odd volumes visit the segments in reverse order
  int64_t repeat_count = 0;            // number of passes over each segment
  int64_t repeat_period = 0;           // segments scanned in order before they are repeated
  RepeatStrategy repeat_strategy = RepeatStrategy::kDefault;
  double radius_begin_mm = 0,
         radius_end_mm = 0;  // radial: along a segment; spiral: inner and outer
  double angle_begin_deg = 0, angle_end_deg = 0;  // radial: over the segments, the end excluded
  SpiralSampling spiral_sampling = SpiralSampling::kDefault;
  int64_t cycles_x = 0, cycles_y = 0;  // Lissajous: periods of a volume
  double phase_x_deg = 0, phase_y_deg = 0;
  std::vector<double> points_x_mm, points_y_mm;  // freeform: [segment, A-scan]

  double offset_x_mm = 0, offset_y_mm = 0, rotation_deg = 0;
  WarpKind warp = WarpKind::kNone;
  double warp_mm_per_deg = 0;                             // angular
  double warp_lens_spacing_mm = 0, warp_rad_per_deg = 0;  // telecentric
  FlybackPolicy flyback = FlybackPolicy::kDefault;
  bool has_limits = false;
  AxisLimits limits[2];  // x, y

  /// Set by ResolvePattern if the plain raster rule (gpu/math/placement.h) is not sufficient.
  std::shared_ptr<const PatternPlan> plan;

  bool repeated() const {
    return kind == PatternKind::kRepeatedRaster || kind == PatternKind::kRepeatedRadial;
  }
  bool averaged() const { return repeated() && repeat_strategy == RepeatStrategy::kAverage; }
  int64_t passes() const { return repeated() ? repeat_count : 1; }  // over each segment
  int64_t repeats() const {
    return averaged() ? 1 : passes();
  }  // of each segment in a stored volume
  int64_t rows() const { return bscans_per_volume * repeats(); }  // of a stored volume
};

}  // namespace octavo::pattern
