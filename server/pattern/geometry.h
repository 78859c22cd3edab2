#pragma once

#include <cstdint>

#include "server/pattern/pattern.h"

namespace octavo::pattern {

struct Point {
  double x = 0, y = 0;
};

/// Position of A-scan `ascan` (forward) of segment `bscan` of a resolved pattern, in mm on the
/// sample, with rotation and offset applied. Spiral and Lissajous number their A-scans
/// consecutively: bscan * ascans_per_bscan + ascan.
Point PositionMm(const Pattern& pattern, int64_t bscan, int64_t ascan);

/// The same without rotation and offset: in the pattern's own frame.
Point OwnPositionMm(const Pattern& pattern, int64_t bscan, int64_t ascan);

/// Sample position (mm) → scanner position (mm without a warp, else degrees): the inverse of the
/// warp.
///   angular      deg = mm / mm_per_deg
///   telecentric  deg = atan2(mm, lens_spacing) / rad_per_deg
///                (forward: mm = lens_spacing tan(deg rad_per_deg))
Point ToScanner(const Pattern& pattern, Point mm);
/// Scanner position → sample position: the warp itself.
Point FromScanner(const Pattern& pattern, Point scanner);

/// Angle along an Archimedean spiral of `turns` turns from radius `inner` to `outer` at the
/// fraction t (0 ... 1) of its records, in rad.  kAngular: t of the whole angle.  kLinear: t of the
/// arc length.
double SpiralAngle(double inner, double outer, double turns, SpiralSampling sampling, double t);
/// The inverse: fraction of the records at `angle` rad.
double SpiralFraction(double inner, double outer, double turns, SpiralSampling sampling,
                      double angle);

}  // namespace octavo::pattern
