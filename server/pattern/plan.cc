#include "server/pattern/plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/pattern/flyback.h"

namespace octavo::pattern {
namespace {

constexpr double kMostMm = 1e4;
constexpr int64_t kMostFlyback = 1 << 20, kMostVolumeFlyback = 1 << 24;

/// A single path without inner ends.
bool IsPath(const Pattern& p) {
  return p.kind == PatternKind::kSpiral || p.kind == PatternKind::kLissajous;
}

// The request field with this kind's flyback counts.
std::string FlybackField(const Pattern& p, bool volume) {
  return FieldsOf(p.kind) + (volume || IsPath(p) ? "volume_flyback_records" : "flyback_records");
}

absl::Status ResolveShape(Pattern& p) {
  const std::string at = FieldsOf(p.kind);
  if (p.kind == PatternKind::kFreeform) {
    if (p.points_x_mm.size() != p.points_y_mm.size()) {
      return InvalidField(at + "y_mm", absl::StrCat("has ", p.points_y_mm.size(), " values; needs ",
                                                    p.points_x_mm.size(), ", as many as x_mm"));
    }
    const auto points = static_cast<int64_t>(p.points_x_mm.size());
    if (points < 1 || points > kMostFreeformPoints) {
      return InvalidField(
          at + "x_mm", absl::StrCat("has ", points, " values; allowed 1 to ", kMostFreeformPoints));
    }
    if (p.ascans_per_bscan == 0) p.ascans_per_bscan = points;
    if (p.ascans_per_bscan < 1 || points % p.ascans_per_bscan != 0) {
      return InvalidField(
          at + "ascans_per_bscan",
          absl::StrCat("is ", p.ascans_per_bscan, "; must divide the ", points, " points"));
    }
    p.bscans_per_volume = points / p.ascans_per_bscan;
    for (const auto& [name, values] :
         {std::pair{"x_mm", &p.points_x_mm}, std::pair{"y_mm", &p.points_y_mm}}) {
      for (size_t i = 0; i < values->size(); ++i) {
        OCTAVO_RETURN_IF_ERROR(
            InRange(absl::StrCat(at, name, "[", i, "]"), (*values)[i], -kMostMm, kMostMm));
      }
    }
  }
  const char* columns = p.kind == PatternKind::kSpiral ? "ascans_per_ring"
                        : IsPath(p)                    ? "ascans_per_row"
                                                       : "ascans_per_bscan";
  const char* rows = p.kind == PatternKind::kSpiral ? "rings"
                     : IsPath(p)                    ? "rows"
                                                    : "bscans_per_volume";
  OCTAVO_RETURN_IF_ERROR(InRange(at + columns, p.ascans_per_bscan, 1, 1 << 20));
  OCTAVO_RETURN_IF_ERROR(InRange(at + rows, p.bscans_per_volume, 1, 1 << 20));
  OCTAVO_RETURN_IF_ERROR(InRange(at + "volumes", p.volumes, 0, (int64_t{1} << 32) - 1));
  if (p.repeated()) {
    const std::string repeat = absl::StrCat("pattern.", Name(p.kind), ".repeat.");
    if (p.repeat_count == 0) p.repeat_count = 3;
    if (p.repeat_period == 0) p.repeat_period = std::min<int64_t>(2, p.bscans_per_volume);
    if (p.repeat_strategy == RepeatStrategy::kDefault) p.repeat_strategy = RepeatStrategy::kPack;
    OCTAVO_RETURN_IF_ERROR(InRange(repeat + "count", p.repeat_count, 1, 1024));
    OCTAVO_RETURN_IF_ERROR(InRange(repeat + "period", p.repeat_period, 1, p.bscans_per_volume));
  }
  return absl::OkStatus();
}

absl::Status ResolveExtents(Pattern& p) {
  const std::string at = FieldsOf(p.kind);
  const auto columns = static_cast<double>(p.ascans_per_bscan),
             rows = static_cast<double>(p.bscans_per_volume);
  if (IsRaster(p) || p.kind == PatternKind::kLissajous) {
    OCTAVO_RETURN_IF_ERROR(InRange(at + "extent_x_mm", p.extent_x_mm, 0.0, kMostMm));
    OCTAVO_RETURN_IF_ERROR(InRange(at + "extent_y_mm", p.extent_y_mm, 0.0, kMostMm));
    if (p.extent_x_mm == 0) p.extent_x_mm = 1e-3 * columns;
    if (p.extent_y_mm == 0) p.extent_y_mm = 1e-3 * (IsRaster(p) ? rows : columns);
  }
  if (IsRadial(p)) {
    OCTAVO_RETURN_IF_ERROR(InRange(at + "radius_begin_mm", p.radius_begin_mm, -kMostMm, kMostMm));
    OCTAVO_RETURN_IF_ERROR(InRange(at + "radius_end_mm", p.radius_end_mm, -kMostMm, kMostMm));
    if (p.radius_begin_mm == 0 && p.radius_end_mm == 0) {
      p.radius_end_mm = 0.5e-3 * columns;
      p.radius_begin_mm = -p.radius_end_mm;
    }
    if (p.radius_begin_mm == p.radius_end_mm) {
      return InvalidField(
          at + "radius_end_mm",
          absl::StrCat("is ", p.radius_end_mm, ", where the segment begins; must differ"));
    }
    OCTAVO_RETURN_IF_ERROR(InRange(at + "angle_begin_deg", p.angle_begin_deg, -360.0, 360.0));
    OCTAVO_RETURN_IF_ERROR(InRange(at + "angle_end_deg", p.angle_end_deg, -360.0, 360.0));
    // Segments through the centre cover the circle in half a turn.
    if (p.angle_begin_deg == 0 && p.angle_end_deg == 0)
      p.angle_end_deg = p.radius_begin_mm * p.radius_end_mm < 0 ? 180 : 360;
    if (p.bscans_per_volume > 1 && (p.angle_begin_deg == p.angle_end_deg ||
                                    std::abs(p.angle_end_deg - p.angle_begin_deg) > 360)) {
      return InvalidField(at + "angle_end_deg",
                          absl::StrCat("is ", p.angle_end_deg, " and angle_begin_deg ",
                                       p.angle_begin_deg, "; must differ by at most 360"));
    }
  }
  if (p.kind == PatternKind::kSpiral) {
    OCTAVO_RETURN_IF_ERROR(InRange(at + "inner_radius_mm", p.radius_begin_mm, 0.0, kMostMm));
    if (p.radius_end_mm == 0) p.radius_end_mm = std::max(p.radius_begin_mm, 1e-3 * rows);
    OCTAVO_RETURN_IF_ERROR(InRange(at + "outer_radius_mm", p.radius_end_mm,
                                   std::max(p.radius_begin_mm, 1e-6), kMostMm));
    if (p.spiral_sampling == SpiralSampling::kDefault) p.spiral_sampling = SpiralSampling::kAngular;
  }
  if (p.kind == PatternKind::kLissajous) {
    const int64_t records = p.ascans_per_bscan * p.bscans_per_volume;
    if (p.cycles_x == 0 && p.cycles_y == 0) {
      p.cycles_y = std::max<int64_t>(1, p.bscans_per_volume / 2);
      p.cycles_x = p.cycles_y + 1;
    }
    OCTAVO_RETURN_IF_ERROR(
        InRange(at + "cycles_x", p.cycles_x, 1, std::max<int64_t>(1, records / 2)));
    OCTAVO_RETURN_IF_ERROR(
        InRange(at + "cycles_y", p.cycles_y, 1, std::max<int64_t>(1, records / 2)));
    OCTAVO_RETURN_IF_ERROR(InRange(at + "phase_x_deg", p.phase_x_deg, -360.0, 360.0));
    OCTAVO_RETURN_IF_ERROR(InRange(at + "phase_y_deg", p.phase_y_deg, -360.0, 360.0));
  }
  if (!IsRaster(p) && p.kind != PatternKind::kLissajous) {
    double x = 0, y = 0;
    if (p.kind == PatternKind::kFreeform) {
      for (size_t i = 0; i < p.points_x_mm.size(); ++i)
        x = std::max(x, std::abs(p.points_x_mm[i])), y = std::max(y, std::abs(p.points_y_mm[i]));
    } else {
      x = y = std::max(std::abs(p.radius_begin_mm), std::abs(p.radius_end_mm));
    }
    p.extent_x_mm = std::max(2 * x, 1e-3);
    p.extent_y_mm = std::max(2 * y, 1e-3);
  }
  return absl::OkStatus();
}

absl::Status ResolveScanner(Pattern& p, double rate_hz) {
  OCTAVO_RETURN_IF_ERROR(InRange("pattern.offset_x_mm", p.offset_x_mm, -kMostMm, kMostMm));
  OCTAVO_RETURN_IF_ERROR(InRange("pattern.offset_y_mm", p.offset_y_mm, -kMostMm, kMostMm));
  OCTAVO_RETURN_IF_ERROR(InRange("pattern.rotation_deg", p.rotation_deg, -360.0, 360.0));
  if (p.warp == WarpKind::kAngular) {
    if (p.warp_mm_per_deg == 0) p.warp_mm_per_deg = 2;
    OCTAVO_RETURN_IF_ERROR(InRange("pattern.angular_warp.factor", p.warp_mm_per_deg, 1e-6, 1e6));
  }
  if (p.warp == WarpKind::kTelecentric) {
    if (p.warp_lens_spacing_mm == 0) p.warp_lens_spacing_mm = 100;
    if (p.warp_rad_per_deg == 0) p.warp_rad_per_deg = 2 * std::numbers::pi / 180;
    OCTAVO_RETURN_IF_ERROR(InRange("pattern.telecentric_warp.galvo_lens_spacing_mm",
                                   p.warp_lens_spacing_mm, 1e-3, 1e6));
    OCTAVO_RETURN_IF_ERROR(
        InRange("pattern.telecentric_warp.scale_rad_per_deg", p.warp_rad_per_deg, 1e-6, 1.0));
  }
  OCTAVO_RETURN_IF_ERROR(InRange(FlybackField(p, false), p.flyback_records, 0, kMostFlyback));
  OCTAVO_RETURN_IF_ERROR(
      InRange(FlybackField(p, true), p.volume_flyback_records, 0, kMostVolumeFlyback));
  if (p.flyback == FlybackPolicy::kDefault) p.flyback = FlybackPolicy::kFixed;
  for (const bool volume : {false, true}) {
    const int64_t records = volume ? p.volume_flyback_records : p.flyback_records;
    if (p.flyback == FlybackPolicy::kMinimumTime && records != 0) {
      return InvalidField(
          FlybackField(p, volume),
          absl::StrCat("is ", records, "; MINIMUM_TIME counts them itself: allowed 0"));
    }
  }
  if (p.has_limits) {
    for (int axis = 0; axis < 2; ++axis) {
      AxisLimits& limits = p.limits[axis];
      const std::string at = absl::StrCat("pattern.scanner.", axis == 0 ? "x." : "y.");
      OCTAVO_RETURN_IF_ERROR(InRange(at + "velocity", limits.velocity, 1e-9, 1e12));
      OCTAVO_RETURN_IF_ERROR(InRange(at + "acceleration", limits.acceleration, 1e-9, 1e15));
      if (limits.position_min == 0 && limits.position_max == 0)
        limits.position_min = -(limits.position_max = 12.5);
      if (!(std::isfinite(limits.position_min) && std::isfinite(limits.position_max) &&
            limits.position_min < limits.position_max)) {
        return InvalidField(at + "position_max",
                            absl::StrCat("is ", limits.position_max, " and position_min ",
                                         limits.position_min, "; min must be less than max"));
      }
    }
    if (!(rate_hz > 0))
      return InvalidField("acquisition.record_rate_hz",
                          "is not known; the limits of pattern.scanner need it");
  } else if (p.flyback == FlybackPolicy::kMinimumTime) {
    return InvalidField("pattern.scanner", "is not given; MINIMUM_TIME flyback needs its limits");
  }
  return absl::OkStatus();
}

// The order of a volume's segments, without flyback between them; record numbers are added later.
std::vector<PatternSegment> OrderOf(const Pattern& p, bool odd) {
  std::vector<PatternSegment> order;
  if (IsPath(p)) {
    order.push_back({.first_record = 0,
                     .ascans = p.ascans_per_bscan * p.bscans_per_volume,
                     .bscan = 0,
                     .repeat = 0,
                     .row = 0,
                     .reversed = odd && p.bidirectional_volumes});
    return order;
  }
  const int64_t repeats = p.passes(), period = p.repeated() ? p.repeat_period : p.bscans_per_volume;
  const int64_t groups = (p.bscans_per_volume + period - 1) / period;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = (odd ? groups - 1 - g : g) * period,
                  end = std::min(begin + period, p.bscans_per_volume);
    for (int64_t repeat = 0; repeat < repeats; ++repeat) {
      for (int64_t i = 0; i < end - begin; ++i) {
        const int64_t b = odd ? end - 1 - i : begin + i;
        order.push_back({.first_record = 0,
                         .ascans = p.ascans_per_bscan,
                         .bscan = b,
                         .repeat = repeat,
                         .row = RepeatRow(p, b, repeat)});
      }
    }
  }
  // The direction alternates along the scan, also from an even volume to the following odd one.
  const int64_t before = odd ? static_cast<int64_t>(order.size()) : 0;
  for (size_t k = 0; k < order.size(); ++k)
    order[k].reversed = p.bidirectional && ((before + static_cast<int64_t>(k)) & 1);
  return order;
}

Point ScannerAt(const Pattern& p, const PatternSegment& segment, int64_t sample) {
  return ToScanner(
      p, PositionMm(p, segment.bscan, segment.reversed ? segment.ascans - 1 - sample : sample));
}

// From the end of one segment to the beginning of the next, with the velocities of the nearest two
// samples.
void MovesBetween(const Pattern& p, const PatternSegment& from, const PatternSegment& to,
                  double rate_hz, AxisMove moves[2]) {
  const Point a = ScannerAt(p, from, from.ascans - 1), b = ScannerAt(p, to, 0);
  const Point before = from.ascans > 1 ? ScannerAt(p, from, from.ascans - 2) : a,
              after = to.ascans > 1 ? ScannerAt(p, to, 1) : b;
  moves[0] = {.from = a.x,
              .from_velocity = (a.x - before.x) * rate_hz,
              .to = b.x,
              .to_velocity = (after.x - b.x) * rate_hz};
  moves[1] = {.from = a.y,
              .from_velocity = (a.y - before.y) * rate_hz,
              .to = b.y,
              .to_velocity = (after.y - b.y) * rate_hz};
}

std::string Place(const PatternSegment& segment, int64_t sample) {
  return absl::StrCat("segment ", segment.bscan, ", sample ", sample);
}

// Positions, velocities and accelerations of the active samples against the limits.
absl::Status CheckActive(const Pattern& p, const PatternSegment& segment, double rate_hz) {
  Point before{}, last{};
  for (int64_t j = 0; j < segment.ascans; ++j) {
    const Point now = ScannerAt(p, segment, j);
    for (int axis = 0; axis < 2; ++axis) {
      const AxisLimits& limits = p.limits[axis];
      const auto of = [axis](const Point& point) { return axis == 0 ? point.x : point.y; };
      const std::string at = axis == 0 ? "pattern.scanner.x." : "pattern.scanner.y.";
      if (of(now) < limits.position_min || of(now) > limits.position_max) {
        return InvalidField(
            at + (of(now) < limits.position_min ? "position_min" : "position_max"),
            absl::StrCat("is exceeded in ", Place(segment, j), ": position ", of(now), "; allowed ",
                         limits.position_min, " to ", limits.position_max));
      }
      const double velocity = j >= 1 ? (of(now) - of(last)) * rate_hz : 0;
      if (std::abs(velocity) > limits.velocity * (1 + 1e-9)) {
        return InvalidField(at + "velocity",
                            absl::StrCat("is exceeded in ", Place(segment, j), ": ", velocity,
                                         " per s; allowed ", limits.velocity));
      }
      const double acceleration =
          j >= 2 ? (of(now) - 2 * of(last) + of(before)) * rate_hz * rate_hz : 0;
      // If positions hardly change, their differences are rounding errors, amplified by the rate.
      const double rounding = 1e-15 * std::max(1.0, std::abs(of(now))) * rate_hz * rate_hz;
      if (std::abs(acceleration) > limits.acceleration * (1 + 1e-9) + rounding) {
        return InvalidField(at + "acceleration",
                            absl::StrCat("is exceeded in ", Place(segment, j), ": ", acceleration,
                                         " per s^2; allowed ", limits.acceleration));
      }
    }
    before = last;
    last = now;
  }
  return absl::OkStatus();
}

// Records from one segment to the next.
absl::StatusOr<int64_t> FlybackRecords(const Pattern& p, const PatternSegment& from,
                                       const PatternSegment& to, bool volume, double rate_hz) {
  const int64_t fixed = p.flyback_records + (volume ? p.volume_flyback_records : 0);
  if (!p.has_limits || p.flyback == FlybackPolicy::kFixedLinear) return fixed;
  if (p.kind == PatternKind::kLissajous && fixed == 0) return 0;  // the figure closes on itself
  const bool least = p.flyback == FlybackPolicy::kMinimumTime;
  AxisMove moves[2];
  MovesBetween(p, from, to, rate_hz, moves);
  const int64_t records =
      LeastRecords(moves, p.limits, 1 / rate_hz, least ? 0 : fixed, kMostVolumeFlyback);
  if (records < 0) {
    return InvalidField(
        "pattern.scanner",
        absl::StrCat("allows no flyback after segment ", from.bscan, " within ", kMostVolumeFlyback,
                     " records; raise velocity and acceleration"));
  }
  if (!least && records > fixed) {
    return InvalidField(FlybackField(p, volume && p.volume_flyback_records > 0),
                        absl::StrCat("leaves ", fixed, " records after segment ", from.bscan,
                                     "; the limits of pattern.scanner need ", records));
  }
  return records;
}

}  // namespace

const char* Name(PatternKind kind) {
  static constexpr const char* kNames[] = {
      "raster", "repeated_raster", "radial", "repeated_radial", "spiral", "lissajous", "freeform"};
  return kNames[static_cast<int>(kind)];
}

std::string FieldsOf(PatternKind kind) {
  if (kind == PatternKind::kRepeatedRaster) return "pattern.repeated_raster.raster.";
  if (kind == PatternKind::kRepeatedRadial) return "pattern.repeated_radial.radial.";
  return absl::StrCat("pattern.", Name(kind), ".");
}

int64_t RepeatRow(const Pattern& p, int64_t bscan, int64_t repeat) {
  if (!p.repeated() || p.averaged()) return bscan;
  if (p.repeat_strategy != RepeatStrategy::kOrder) return bscan * p.repeat_count + repeat;
  const int64_t group = bscan / p.repeat_period * p.repeat_period,
                in_group = std::min(p.repeat_period, p.bscans_per_volume - group);
  return group * p.repeat_count + repeat * in_group + bscan - group;
}

void SpacingUm(const Pattern& p, double* y, double* x) {
  const auto columns = static_cast<double>(p.ascans_per_bscan),
             rows = static_cast<double>(p.bscans_per_volume);
  *x = p.extent_x_mm * 1e3 / columns;
  *y = p.extent_y_mm * 1e3 / rows;
  if (IsRaster(p)) return;
  if (IsRadial(p)) {
    *x = std::abs(p.radius_end_mm - p.radius_begin_mm) * 1e3 / columns;
    const double step =
        std::abs(p.angle_end_deg - p.angle_begin_deg) / rows * std::numbers::pi / 180;
    *y = p.bscans_per_volume == 1 ? *x : step * 0.5e3 * p.extent_x_mm;
    return;
  }
  double path = 0;
  const int64_t all = p.ascans_per_bscan * p.bscans_per_volume;
  for (int64_t i = 1; i < all; ++i) {
    if (p.kind == PatternKind::kFreeform && i % p.ascans_per_bscan == 0) continue;
    const Point a = OwnPositionMm(p, 0, i - 1), b = OwnPositionMm(p, 0, i);
    path += std::hypot(b.x - a.x, b.y - a.y);
  }
  const double steps =
      static_cast<double>(p.kind == PatternKind::kFreeform ? all - p.bscans_per_volume : all - 1);
  *x = path > 0 ? path * 1e3 / steps : *x;
  if (p.kind == PatternKind::kSpiral && p.radius_end_mm > p.radius_begin_mm)
    *y = (p.radius_end_mm - p.radius_begin_mm) * 1e3 / rows;
}

absl::StatusOr<PatternPlan> MakePlan(const Pattern& p, double rate_hz) {
  PatternPlan plan;
  plan.rows = p.rows();
  plan.columns = p.ascans_per_bscan;
  plan.kinds = p.bidirectional_volumes ? 2 : 1;
  const auto too_many = [&](int64_t records) {
    return InvalidField(
        FieldsOf(p.kind) + (p.kind == PatternKind::kFreeform    ? "x_mm"
                            : p.kind == PatternKind::kSpiral    ? "rings"
                            : p.kind == PatternKind::kLissajous ? "rows"
                                                                : "bscans_per_volume"),
        absl::StrCat("makes ", records, " records a volume; allowed ", kMostPlanRecords,
                     " for this kind of pattern"));
  };
  if (plan.rows > kMostPlanRecords / plan.columns) return too_many(plan.rows * plan.columns);
  int64_t last_gap[2] = {0, 0}, records[2] = {0, 0};
  for (int k = 0; k < plan.kinds; ++k) plan.kind[k].segments = OrderOf(p, k == 1);
  for (int k = 0; k < plan.kinds; ++k) {
    auto& segments = plan.kind[k].segments;
    for (size_t i = 0; i < segments.size(); ++i) {
      // Running backwards or repeating a segment does not change its speed.
      if (p.has_limits && k == 0 && segments[i].repeat == 0)
        OCTAVO_RETURN_IF_ERROR(CheckActive(p, segments[i], rate_hz));
      segments[i].first_record = records[k];
      records[k] += segments[i].ascans;
      plan.kind[k].active_records = records[k];
      const bool last = i + 1 == segments.size();
      const PatternSegment& next =
          last ? plan.kind[plan.kinds - 1 - k].segments[0] : segments[i + 1];
      OCTAVO_ASSIGN_OR_RETURN(const int64_t gap,
                              FlybackRecords(p, segments[i], next, last, rate_hz));
      records[k] += gap;
      if (last) last_gap[k] = gap;
      if (records[k] > kMostPlanRecords) return too_many(records[k]);
    }
  }
  // All volumes take the same number of records: the flyback after the shorter kind waits, as far
  // as the limits allow.
  plan.volume_records = std::max(records[0], records[plan.kinds - 1]);
  for (int64_t tried = 0; plan.kinds == 2 && p.has_limits &&
                          p.flyback == FlybackPolicy::kMinimumTime && tried < 1 << 16;
       ++tried) {
    int64_t needed = plan.volume_records;
    for (int k = 0; k < 2; ++k) {
      AxisMove moves[2];
      MovesBetween(p, plan.kind[k].segments.back(), plan.kind[1 - k].segments[0], rate_hz, moves);
      const int64_t active = records[k] - last_gap[k];
      const int64_t gap = LeastRecords(moves, p.limits, 1 / rate_hz, plan.volume_records - active,
                                       kMostVolumeFlyback);
      if (gap < 0)
        return InvalidField(
            "pattern.scanner",
            "allows no flyback that suits even and odd volumes; raise velocity and acceleration");
      needed = std::max(needed, active + gap);
    }
    if (needed == plan.volume_records) break;
    plan.volume_records = needed;
  }
  if (plan.volume_records > kMostPlanRecords) return too_many(plan.volume_records);
  for (int k = 0; k < plan.kinds; ++k) {
    auto& placement = plan.kind[k].placement;
    placement.assign(static_cast<size_t>(plan.volume_records), -1);
    const auto& segments = plan.kind[k].segments;
    plan.kind[k].pitch = segments.size() > 1 ? segments[1].first_record : plan.volume_records;
    for (size_t i = 1; i < segments.size(); ++i) {
      if (segments[i].first_record != static_cast<int64_t>(i) * plan.kind[k].pitch)
        plan.kind[k].pitch = 0;
    }
    for (const PatternSegment& s : segments) {
      for (int64_t j = 0; j < s.ascans; ++j) {
        placement[static_cast<size_t>(s.first_record + j)] =
            static_cast<int32_t>(s.row * plan.columns + (s.reversed ? s.ascans - 1 - j : j));
      }
    }
  }
  return plan;
}

absl::Status ResolvePattern(Pattern& p, double rate_hz) {
  p.plan = nullptr;
  OCTAVO_RETURN_IF_ERROR(ResolveShape(p));
  OCTAVO_RETURN_IF_ERROR(ResolveExtents(p));
  OCTAVO_RETURN_IF_ERROR(ResolveScanner(p, rate_hz));
  const bool plain = p.kind == PatternKind::kRaster && !p.bidirectional_volumes && !p.has_limits &&
                     p.offset_x_mm == 0 && p.offset_y_mm == 0 && p.rotation_deg == 0;
  if (plain) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(PatternPlan plan, MakePlan(p, rate_hz));
  p.plan = std::make_shared<const PatternPlan>(std::move(plan));
  return absl::OkStatus();
}

absl::StatusOr<PatternWaveform> MakeWaveform(const Pattern& p, const PatternPlan& plan,
                                             int64_t volume, double rate_hz) {
  const PatternPlan::Kind& kind = plan.Of(volume);
  PatternWaveform wave;
  wave.rate_hz = rate_hz;
  wave.unit = p.warp == WarpKind::kNone ? "mm" : "deg";
  wave.placement = kind.placement;
  wave.x.resize(static_cast<size_t>(plan.volume_records));
  wave.y.resize(static_cast<size_t>(plan.volume_records));
  const double rate =
      rate_hz > 0 ? rate_hz : 1;  // without limits, only the shape of the flyback matters
  for (size_t i = 0; i < kind.segments.size(); ++i) {
    const PatternSegment& s = kind.segments[i];
    for (int64_t j = 0; j < s.ascans; ++j) {
      const Point at = ScannerAt(p, s, j);
      wave.x[static_cast<size_t>(s.first_record + j)] = at.x;
      wave.y[static_cast<size_t>(s.first_record + j)] = at.y;
    }
    const bool last = i + 1 == kind.segments.size();
    const PatternSegment& next = last ? plan.Of(volume + 1).segments[0] : kind.segments[i + 1];
    const int64_t begin = s.first_record + s.ascans,
                  end = last ? plan.volume_records : next.first_record;
    AxisMove moves[2];
    MovesBetween(p, s, next, rate, moves);
    const double seconds = static_cast<double>(end - begin + 1) / rate;
    for (int axis = 0; axis < 2; ++axis) {
      auto& out = axis == 0 ? wave.x : wave.y;
      const bool limited = p.has_limits && p.flyback != FlybackPolicy::kFixedLinear;
      AxisProfile profile;
      if (limited && end > begin && !PlanMove(moves[axis], p.limits[axis], seconds, &profile)) {
        return absl::InternalError(absl::StrCat("the flyback after segment ", s.bscan,
                                                " does not fit the ", end - begin,
                                                " records planned for it"));
      }
      for (int64_t r = begin; r < end; ++r) {
        const double u = static_cast<double>(r - begin + 1) / static_cast<double>(end - begin + 1);
        out[static_cast<size_t>(r)] =
            limited ? profile.At(u * seconds)
            : p.flyback == FlybackPolicy::kFixedLinear
                ? moves[axis].from + u * (moves[axis].to - moves[axis].from)
                : Smooth(moves[axis], seconds, u);
        const double at = out[static_cast<size_t>(r)];
        if (limited && (at < p.limits[axis].position_min || at > p.limits[axis].position_max)) {
          return InvalidField(
              absl::StrCat("pattern.scanner.", axis == 0 ? "x." : "y.",
                           at < 0 ? "position_min" : "position_max"),
              absl::StrCat("is exceeded in the flyback after segment ", s.bscan, ", sample ",
                           r - begin, ": position ", at, "; allowed ", p.limits[axis].position_min,
                           " to ", p.limits[axis].position_max));
        }
      }
    }
  }
  return wave;
}

}  // namespace octavo::pattern
