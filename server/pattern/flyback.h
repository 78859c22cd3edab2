#pragma once

#include <cstdint>

#include "server/pattern/pattern.h"

namespace octavo::pattern {

/// One axis between two active segments: from (from, from_velocity) to (to, to_velocity).
struct AxisMove {
  double from = 0, from_velocity = 0, to = 0, to_velocity = 0;
};

/// A move in exactly `seconds`: the velocity ramps to a plateau and from there to the end, at the
/// largest acceleration.
struct AxisProfile {
  AxisMove move;
  double seconds = 0, plateau = 0, acceleration = 0;
  /// Position at `t` seconds, 0 ... seconds.
  double At(double t) const;
};

/// Whether the move can be made in exactly `seconds` within the limits of velocity and
/// acceleration; sets `profile`. For a given time the reachable displacements form an interval
/// between the plateau velocities that the time allows, and grow with the plateau: so there is one
/// plateau that hits the target.
bool PlanMove(const AxisMove& move, const AxisLimits& limits, double seconds, AxisProfile* profile);

/// Smallest n >= at_least such that both moves can be made in (n + 1) `interval_s` (n records lie
/// between); -1 if it takes more than `at_most`. A longer time than a possible one may be
/// impossible, because a fast axis cannot always wait.
int64_t LeastRecords(const AxisMove moves[2], const AxisLimits limits[2], double interval_s,
                     int64_t at_least, int64_t at_most);

/// Position at the fraction u (0 ... 1) of a move of `seconds` without limits: the cubic that meets
/// both ends' velocities.
double Smooth(const AxisMove& move, double seconds, double u);

}  // namespace octavo::pattern
