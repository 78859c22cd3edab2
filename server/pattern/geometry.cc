#include "server/pattern/geometry.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace octavo::pattern {
namespace {

constexpr double kTurn = 2 * std::numbers::pi, kRadPerDeg = std::numbers::pi / 180;

// Middle of the i-th of n equal parts of [begin, end].
double Centre(double begin, double end, int64_t i, int64_t n) {
  return begin + (static_cast<double>(i) + 0.5) * (end - begin) / static_cast<double>(n);
}

// Arc length of r = b θ from the origin to radius r, times sign of b: ∫ sqrt(r² + b²) dr / b.
double ArcLength(double r, double b) {
  return (r * std::hypot(r, b) + b * b * std::asinh(r / b)) / (2 * b);
}

}  // namespace

double SpiralAngle(double inner, double outer, double turns, SpiralSampling sampling, double t) {
  const double whole = kTurn * turns, b = (outer - inner) / whole;
  if (sampling != SpiralSampling::kLinear || b < 1e-12 * outer) return whole * t;
  const double from = ArcLength(inner, b), wanted = from + t * (ArcLength(outer, b) - from);
  double r = std::sqrt(inner * inner + t * (outer * outer - inner * inner));
  for (int i = 0; i < 20; ++i) {  // Newton; the arc length is convex and rising, the start is near
    const double step = (ArcLength(r, b) - wanted) * b / std::hypot(r, b);
    r = std::clamp(r - step, inner, outer);
    if (std::abs(step) < 1e-14 * outer) break;
  }
  return (r - inner) / b;
}

double SpiralFraction(double inner, double outer, double turns, SpiralSampling sampling,
                      double angle) {
  const double whole = kTurn * turns, b = (outer - inner) / whole;
  if (sampling != SpiralSampling::kLinear || b < 1e-12 * outer) return angle / whole;
  const double from = ArcLength(inner, b);
  return (ArcLength(inner + b * angle, b) - from) / (ArcLength(outer, b) - from);
}

Point OwnPositionMm(const Pattern& p, int64_t bscan, int64_t ascan) {
  const int64_t number = bscan * p.ascans_per_bscan + ascan,
                all = p.ascans_per_bscan * p.bscans_per_volume;
  switch (p.kind) {
    case PatternKind::kRaster:
    case PatternKind::kRepeatedRaster:
      return {.x = Centre(-0.5 * p.extent_x_mm, 0.5 * p.extent_x_mm, ascan, p.ascans_per_bscan),
              .y = Centre(-0.5 * p.extent_y_mm, 0.5 * p.extent_y_mm, bscan, p.bscans_per_volume)};
    case PatternKind::kRadial:
    case PatternKind::kRepeatedRadial: {
      const double radius = Centre(p.radius_begin_mm, p.radius_end_mm, ascan, p.ascans_per_bscan);
      const double angle =
          kRadPerDeg *
          (p.angle_begin_deg + static_cast<double>(bscan) * (p.angle_end_deg - p.angle_begin_deg) /
                                   static_cast<double>(p.bscans_per_volume));
      return {.x = radius * std::cos(angle), .y = radius * std::sin(angle)};
    }
    case PatternKind::kSpiral: {
      const double turns = static_cast<double>(p.bscans_per_volume);
      const double angle = SpiralAngle(p.radius_begin_mm, p.radius_end_mm, turns, p.spiral_sampling,
                                       static_cast<double>(number) / static_cast<double>(all));
      const double radius =
          p.radius_begin_mm + (p.radius_end_mm - p.radius_begin_mm) * angle / (kTurn * turns);
      return {.x = radius * std::cos(angle), .y = radius * std::sin(angle)};
    }
    case PatternKind::kLissajous: {
      // Subtract whole periods first, so that the argument of the sine stays small and exact.
      const auto wave = [&](int64_t cycles, double phase_deg) {
        return std::sin(kTurn * static_cast<double>(cycles * number % all) /
                            static_cast<double>(all) +
                        kRadPerDeg * phase_deg);
      };
      return {.x = 0.5 * p.extent_x_mm * wave(p.cycles_x, p.phase_x_deg),
              .y = 0.5 * p.extent_y_mm * wave(p.cycles_y, p.phase_y_deg)};
    }
    case PatternKind::kFreeform:
      return {.x = p.points_x_mm[static_cast<size_t>(number)],
              .y = p.points_y_mm[static_cast<size_t>(number)]};
  }
  return {};
}

Point PositionMm(const Pattern& p, int64_t bscan, int64_t ascan) {
  const Point own = OwnPositionMm(p, bscan, ascan);
  const double c = std::cos(kRadPerDeg * p.rotation_deg), s = std::sin(kRadPerDeg * p.rotation_deg);
  return {.x = c * own.x - s * own.y + p.offset_x_mm, .y = s * own.x + c * own.y + p.offset_y_mm};
}

Point ToScanner(const Pattern& p, Point mm) {
  switch (p.warp) {
    case WarpKind::kNone: return mm;
    case WarpKind::kAngular: return {.x = mm.x / p.warp_mm_per_deg, .y = mm.y / p.warp_mm_per_deg};
    case WarpKind::kTelecentric:
      return {.x = std::atan2(mm.x, p.warp_lens_spacing_mm) / p.warp_rad_per_deg,
              .y = std::atan2(mm.y, p.warp_lens_spacing_mm) / p.warp_rad_per_deg};
  }
  return mm;
}

Point FromScanner(const Pattern& p, Point scanner) {
  switch (p.warp) {
    case WarpKind::kNone: return scanner;
    case WarpKind::kAngular:
      return {.x = scanner.x * p.warp_mm_per_deg, .y = scanner.y * p.warp_mm_per_deg};
    case WarpKind::kTelecentric:
      return {.x = p.warp_lens_spacing_mm * std::tan(scanner.x * p.warp_rad_per_deg),
              .y = p.warp_lens_spacing_mm * std::tan(scanner.y * p.warp_rad_per_deg)};
  }
  return scanner;
}

}  // namespace octavo::pattern
