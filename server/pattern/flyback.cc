#include "server/pattern/flyback.h"

#include <algorithm>
#include <cmath>

namespace octavo::pattern {
namespace {

// Displacement of a move in `seconds`: ramp from v0 to the plateau, plateau, ramp to v1.
double Displacement(double v0, double v1, double plateau, double acceleration, double seconds) {
  const double up = std::abs(plateau - v0) / acceleration,
               down = std::abs(v1 - plateau) / acceleration;
  return 0.5 * (v0 + plateau) * up + plateau * (seconds - up - down) + 0.5 * (plateau + v1) * down;
}

}  // namespace

double AxisProfile::At(double t) const {
  const double up = std::abs(plateau - move.from_velocity) / acceleration,
               down = std::abs(move.to_velocity - plateau) / acceleration;
  if (t < up)
    return move.from +
           t * (move.from_velocity +
                0.5 * t * (plateau > move.from_velocity ? acceleration : -acceleration));
  const double left = seconds - t;  // computed from the end backwards, so that the end is exact
  if (left < down)
    return move.to -
           left * (move.to_velocity +
                   0.5 * left * (plateau > move.to_velocity ? acceleration : -acceleration));
  return move.from + 0.5 * (move.from_velocity + plateau) * up + plateau * (t - up);
}

bool PlanMove(const AxisMove& move, const AxisLimits& limits, double seconds,
              AxisProfile* profile) {
  const double v0 = move.from_velocity, v1 = move.to_velocity, a = limits.acceleration;
  // Rounding of a finite difference must not forbid a velocity that is just the limit.
  const double v = limits.velocity * (1 + 1e-9);
  if (std::abs(v0) > v || std::abs(v1) > v || std::abs(v1 - v0) > a * seconds) return false;
  double lo = std::max(-v, 0.5 * (v0 + v1 - a * seconds)),
         hi = std::min(v, 0.5 * (v0 + v1 + a * seconds));
  const double wanted = move.to - move.from, slack = 1e-12 * (std::abs(wanted) + v * seconds);
  if (wanted < Displacement(v0, v1, lo, a, seconds) - slack ||
      wanted > Displacement(v0, v1, hi, a, seconds) + slack)
    return false;
  for (int i = 0; i < 100 && lo < hi; ++i) {
    const double middle = 0.5 * (lo + hi);
    (Displacement(v0, v1, middle, a, seconds) < wanted ? lo : hi) = middle;
  }
  *profile = {.move = move, .seconds = seconds, .plateau = 0.5 * (lo + hi), .acceleration = a};
  return true;
}

int64_t LeastRecords(const AxisMove moves[2], const AxisLimits limits[2], double interval_s,
                     int64_t at_least, int64_t at_most) {
  // A move takes at least the time for its change of velocity, and for its distance at full speed.
  double seconds = 0;
  for (int axis = 0; axis < 2; ++axis) {
    seconds = std::max(
        {seconds,
         std::abs(moves[axis].to_velocity - moves[axis].from_velocity) / limits[axis].acceleration,
         std::abs(moves[axis].to - moves[axis].from) / limits[axis].velocity});
  }
  if (!(seconds / interval_s <= static_cast<double>(at_most) + 2)) return -1;
  AxisProfile profile;
  for (int64_t n = std::max(at_least, static_cast<int64_t>(seconds / interval_s) - 2); n <= at_most;
       ++n) {
    const double time = static_cast<double>(n + 1) * interval_s;
    if (PlanMove(moves[0], limits[0], time, &profile) &&
        PlanMove(moves[1], limits[1], time, &profile))
      return n;
  }
  return -1;
}

double Smooth(const AxisMove& move, double seconds, double u) {
  const double u2 = u * u, u3 = u2 * u;
  return (2 * u3 - 3 * u2 + 1) * move.from + (u3 - 2 * u2 + u) * seconds * move.from_velocity +
         (3 * u2 - 2 * u3) * move.to + (u3 - u2) * seconds * move.to_velocity;
}

}  // namespace octavo::pattern
