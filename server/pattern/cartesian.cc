#include "server/pattern/cartesian.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"
#include "tbb/parallel_for.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/pattern/geometry.h"
#include "server/pattern/plan.h"

namespace octavo::pattern {
namespace {

constexpr double kTurn = 2 * std::numbers::pi, kRadPerDeg = std::numbers::pi / 180;
constexpr int64_t kMostSide = 1 << 14, kMostPoints = int64_t{1} << 26;
constexpr int64_t kMostTaps = int64_t{1} << 28;
constexpr int kNearest = 4;

struct Tap {
  int64_t ascan = -1;
  double weight = 0;
};

// Splits `value` within 0 ... n-1 into the index before it and the weight of the next. Half a step
// beyond the ends still counts as the end, because the outermost A-scans cover half a pitch beyond
// their centres.
bool Between(double value, int64_t n, int64_t* first, double* t) {
  if (!(value >= -0.5 - 1e-9 && value <= static_cast<double>(n) - 0.5 + 1e-9)) return false;
  value = std::clamp(value, 0.0, static_cast<double>(n - 1));
  *first = std::min(static_cast<int64_t>(value), std::max<int64_t>(n - 2, 0));
  *t = value - static_cast<double>(*first);
  return true;
}

class RadialTaps {
 public:
  explicit RadialTaps(const Pattern& p)
      : p_(p),
        step_((p.angle_end_deg - p.angle_begin_deg) / static_cast<double>(p.bscans_per_volume)) {}
  // Only a circle of segments through the centre covers a point from both sides.
  static int64_t Sides(const Pattern& p) {
    return p.radius_begin_mm * p.radius_end_mm < 0 &&
                   std::abs(p.angle_end_deg - p.angle_begin_deg) > 180 + 1e-9
               ? 2
               : 1;
  }
  int64_t taps() const { return 4 * Sides(p_) * p_.repeats(); }

  void At(Point own, Tap* out) const {
    const double radius = std::hypot(own.x, own.y), angle = std::atan2(own.y, own.x) / kRadPerDeg;
    // The segment in the point's direction covers it, and so does the opposite segment, at the
    // negative radius.
    Tap found[2][4];
    bool seen[2];
    for (int side = 0; side < 2; ++side)
      seen[side] =
          OneSide(side == 0 ? radius : -radius, side == 0 ? angle : angle + 180, found[side]);
    if (seen[0] && Sides(p_) == 1) seen[1] = false;
    const double share = seen[0] && seen[1] ? 0.5 : 1.0;
    for (int side = 0; side < 2; ++side) {
      for (int i = 0; seen[side] && i < 4; ++i) {
        const int64_t b = found[side][i].ascan / p_.ascans_per_bscan,
                      a = found[side][i].ascan % p_.ascans_per_bscan;
        for (int64_t repeat = 0; repeat < p_.repeats(); ++repeat) {
          *out++ = {.ascan = RepeatRow(p_, b, repeat) * p_.ascans_per_bscan + a,
                    .weight = share * found[side][i].weight / static_cast<double>(p_.repeats())};
        }
      }
    }
  }

 private:
  // Bilinear between two segments and two A-scans of each. Beyond the last segment angle the first
  // segment follows: unchanged after a whole turn, at the negative radius after half a turn.
  bool OneSide(double radius, double angle_deg, Tap* out) const {
    const int64_t n = p_.bscans_per_volume;
    const double span = std::abs(p_.angle_end_deg - p_.angle_begin_deg);
    // Steps from the first segment, 0 ... a turn's worth.
    double steps = (angle_deg - p_.angle_begin_deg) / step_;
    const double turn = 360 / std::abs(step_);
    steps -= std::floor(steps / turn) * turn;
    if (steps > turn - 1e-9) steps = 0;
    const bool whole = std::abs(span - 360) < 1e-9, half = std::abs(span - 180) < 1e-9;
    int64_t first = static_cast<int64_t>(steps);
    double t = steps - static_cast<double>(first);
    if (n == 1) {  // a single line: it contains points within half its pitch
      const double off =
          std::abs(std::remainder(angle_deg - p_.angle_begin_deg, 360.0)) * kRadPerDeg;
      const double pitch = std::abs(p_.radius_end_mm - p_.radius_begin_mm) /
                           static_cast<double>(p_.ascans_per_bscan);
      if (off > 0.5 * std::numbers::pi || std::abs(radius) * std::sin(off) > 0.5 * pitch)
        return false;
      first = 0, t = 0;
    } else if (first >= n || (first == n - 1 && !whole && !half)) {
      if (steps > static_cast<double>(n - 1) + 1e-9) return false;
      first = n - 2, t = 1;
    }
    for (int64_t k = 0; k < 2; ++k) {
      const bool around = first + k >= n;
      const int64_t b = n == 1 ? 0 : around ? first + k - n : first + k;
      const double at = around && half ? -radius : radius;
      int64_t a = 0;
      double u = 0;
      const double position = (at - p_.radius_begin_mm) / (p_.radius_end_mm - p_.radius_begin_mm) *
                                  static_cast<double>(p_.ascans_per_bscan) -
                              0.5;
      const double weight = k == 0 ? 1 - t : t;
      if (!Between(position, p_.ascans_per_bscan, &a, &u)) {
        if (weight > 1e-9) return false;
        u = 0;
      }
      out[2 * k] = {.ascan = b * p_.ascans_per_bscan + a, .weight = weight * (1 - u)};
      out[2 * k + 1] = {.ascan = b * p_.ascans_per_bscan + std::min(a + 1, p_.ascans_per_bscan - 1),
                        .weight = weight * u};
    }
    return true;
  }

  const Pattern& p_;
  const double step_;
};

class SpiralTaps {
 public:
  explicit SpiralTaps(const Pattern& p)
      : p_(p),
        turns_(static_cast<double>(p.bscans_per_volume)),
        pitch_((p.radius_end_mm - p.radius_begin_mm) / turns_),
        all_(p.ascans_per_bscan * p.bscans_per_volume),
        last_(SpiralAngle(p.radius_begin_mm, p.radius_end_mm, turns_, p.spiral_sampling,
                          static_cast<double>(all_ - 1) / static_cast<double>(all_))) {}
  int64_t taps() const { return 4; }

  void At(Point own, Tap* out) const {
    const double radius = std::hypot(own.x, own.y), angle = std::atan2(own.y, own.x);
    if (pitch_ < 1e-12) {  // a circle
      if (std::abs(radius - p_.radius_begin_mm) >
          0.5 * kTurn * p_.radius_begin_mm / static_cast<double>(p_.ascans_per_bscan))
        return;
      Along(angle < 0 ? angle + kTurn : angle, 1, out);
      return;
    }
    // In this direction the turns of the spiral lie at radii begin + pitch (angle/2π + k): take the
    // two around the point.
    const double part = angle / kTurn - std::floor(angle / kTurn),
                 turn = (radius - p_.radius_begin_mm) / pitch_ - part;
    const int64_t below = static_cast<int64_t>(std::floor(turn));
    const double t = turn - static_cast<double>(below);
    const auto angle_at = [&](int64_t k) { return kTurn * (part + static_cast<double>(k)); };
    const auto exists = [&](int64_t k) { return k >= 0 && angle_at(k) <= last_ + 1e-9; };
    const bool inner = exists(below), outer = exists(below + 1);
    // Beyond the ends of the path, up to half a pitch, only the nearest turn counts.
    if (inner && outer) {
      Along(angle_at(below), 1 - t, out);
      Along(angle_at(below + 1), t, out + 2);
    } else if (inner && t <= 0.5) {
      Along(angle_at(below), 1, out);
    } else if (outer && t >= 0.5) {
      Along(angle_at(below + 1), 1, out);
    }
  }

 private:
  void Along(double angle, double weight, Tap* out) const {
    const double at =
        SpiralFraction(p_.radius_begin_mm, p_.radius_end_mm, turns_, p_.spiral_sampling, angle) *
        static_cast<double>(all_);
    const int64_t first = std::clamp<int64_t>(static_cast<int64_t>(at + 1e-9), 0, all_ - 1);
    const double u = std::clamp(at - static_cast<double>(first), 0.0, 1.0);
    out[0] = {.ascan = first, .weight = weight * (1 - u)};
    out[1] = {.ascan = std::min(first + 1, all_ - 1), .weight = weight * u};
  }

  const Pattern& p_;
  const double turns_, pitch_;
  const int64_t all_;
  const double last_;  // angle of the last record
};

// Records sorted into square cells as wide as the reach: neighbours are in the nine cells around.
class NearestTaps {
 public:
  NearestTaps(const Pattern& p, double reach) : reach_(reach) {
    const int64_t all = p.ascans_per_bscan * p.bscans_per_volume;
    for (int64_t i = 0; i < all; ++i) points_.push_back(OwnPositionMm(p, 0, i));
    left_ = -0.5 * p.extent_x_mm;
    bottom_ = -0.5 * p.extent_y_mm;
    columns_ = std::max<int64_t>(1, static_cast<int64_t>(p.extent_x_mm / reach) + 1);
    rows_ = std::max<int64_t>(1, static_cast<int64_t>(p.extent_y_mm / reach) + 1);
    begin_.assign(static_cast<size_t>(rows_ * columns_ + 1), 0);
    for (const Point& point : points_) ++begin_[CellOf(point) + 1];
    for (size_t c = 1; c < begin_.size(); ++c) begin_[c] += begin_[c - 1];
    order_.resize(points_.size());
    std::vector<int64_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < points_.size(); ++i)
      order_[static_cast<size_t>(next[CellOf(points_[i])]++)] = static_cast<int64_t>(i);
  }
  int64_t taps() const { return kNearest; }

  void At(Point own, Tap* out) const {
    double squares[kNearest];
    int found = 0;
    const auto row = static_cast<int64_t>(std::floor((own.y - bottom_) / reach_)),
               column = static_cast<int64_t>(std::floor((own.x - left_) / reach_));
    for (int64_t r = std::max<int64_t>(row - 1, 0); r <= std::min(row + 1, rows_ - 1); ++r) {
      for (int64_t c = std::max<int64_t>(column - 1, 0); c <= std::min(column + 1, columns_ - 1);
           ++c) {
        const auto cell = static_cast<size_t>(r * columns_ + c);
        for (int64_t k = begin_[cell]; k < begin_[cell + 1]; ++k) {
          const int64_t i = order_[static_cast<size_t>(k)];
          const double dx = points_[static_cast<size_t>(i)].x - own.x,
                       dy = points_[static_cast<size_t>(i)].y - own.y, square = dx * dx + dy * dy;
          if (square > reach_ * reach_) continue;
          // Insertion sort; among equally near records the earlier one stays in front.
          int place = found;
          while (place > 0 && (square < squares[place - 1] ||
                               (square == squares[place - 1] && i < out[place - 1].ascan)))
            --place;
          if (place >= kNearest) continue;
          for (int m = std::min(found, kNearest - 1); m > place; --m)
            squares[m] = squares[m - 1], out[m] = out[m - 1];
          squares[place] = square;
          out[place] = {.ascan = i, .weight = 0};
          found = std::min(found + 1, kNearest);
        }
      }
    }
    if (found == 0) return;
    const double exact = 1e-12 * reach_ * reach_;
    double sum = 0;
    for (int m = 0; m < found; ++m)
      sum += out[m].weight = squares[0] <= exact ? (m == 0 ? 1.0 : 0.0) : 1 / squares[m];
    for (int m = 0; m < found; ++m) out[m].weight /= sum;
  }

 private:
  size_t CellOf(const Point& point) const {
    const auto clamp = [this](double v, int64_t n) {
      return std::clamp<int64_t>(static_cast<int64_t>(std::floor(v / reach_)), 0, n - 1);
    };
    return static_cast<size_t>(clamp(point.y - bottom_, rows_) * columns_ +
                               clamp(point.x - left_, columns_));
  }

  const double reach_;
  double left_ = 0, bottom_ = 0;
  int64_t rows_ = 1, columns_ = 1;
  std::vector<Point> points_;
  std::vector<int64_t> begin_, order_;
};

bool IsMissing(const std::vector<std::pair<int64_t, int64_t>>& missing, int64_t ascan) {
  auto it = std::upper_bound(missing.begin(), missing.end(), ascan,
                             [](int64_t a, const auto& range) { return a < range.first; });
  return it != missing.begin() && ascan < std::prev(it)->first + std::prev(it)->second;
}

template <class Finder>
CartesianTaps Fill(const Pattern& p, const CartesianGrid& grid,
                   const std::vector<std::pair<int64_t, int64_t>>& missing, const Finder& finder) {
  CartesianTaps result;
  result.taps = finder.taps();
  result.index.assign(static_cast<size_t>(grid.rows * grid.columns * result.taps), -1);
  result.weight.assign(result.index.size(), 0.0f);
  const double c = std::cos(kRadPerDeg * p.rotation_deg), s = std::sin(kRadPerDeg * p.rotation_deg);
  tbb::parallel_for(int64_t{0}, grid.rows, [&](int64_t row) {
    std::vector<Tap> taps(static_cast<size_t>(result.taps));
    for (int64_t column = 0; column < grid.columns; ++column) {
      // Sample → the pattern's own frame: subtract the offset, rotate back.
      const double x =
          grid.centre_x_mm - p.offset_x_mm +
          ((static_cast<double>(column) + 0.5) / static_cast<double>(grid.columns) - 0.5) *
              grid.extent_x_mm;
      const double y = grid.centre_y_mm - p.offset_y_mm +
                       ((static_cast<double>(row) + 0.5) / static_cast<double>(grid.rows) - 0.5) *
                           grid.extent_y_mm;
      std::fill(taps.begin(), taps.end(), Tap{});
      finder.At({.x = c * x + s * y, .y = -s * x + c * y}, taps.data());
      for (size_t t = 0; t < taps.size(); ++t) {
        if (taps[t].ascan < 0 || taps[t].weight <= 0 || IsMissing(missing, taps[t].ascan)) continue;
        const size_t at = static_cast<size_t>((row * grid.columns + column) * result.taps) + t;
        result.index[at] = static_cast<int32_t>(taps[t].ascan);
        result.weight[at] = static_cast<float>(taps[t].weight);
      }
    }
  });
  return result;
}

}  // namespace

absl::Status ResolveGrid(const Pattern& p, const std::string& field, CartesianGrid* grid) {
  if (p.kind == PatternKind::kRaster || p.kind == PatternKind::kRepeatedRaster) {
    return InvalidField(field.substr(0, field.size() - 1),
                        absl::StrCat("makes no sense: the volume was scanned as ", Name(p.kind),
                                     ", which is Cartesian already"));
  }
  for (const auto& [name, value] : {std::pair{"extent_x_mm", &grid->extent_x_mm},
                                    std::pair{"extent_y_mm", &grid->extent_y_mm}}) {
    if (*value == 0) *value = std::string(name) == "extent_x_mm" ? p.extent_x_mm : p.extent_y_mm;
    if (!std::isfinite(*value) || *value < 1e-6 || *value > 1e4)
      return FieldNotAllowed(field + name, *value, "1e-6 to 1e4");
  }
  const bool radial = p.kind == PatternKind::kRadial || p.kind == PatternKind::kRepeatedRadial;
  const double pixels =
      radial ? p.extent_x_mm / std::abs(p.radius_end_mm - p.radius_begin_mm) *
                   static_cast<double>(p.ascans_per_bscan)
      : p.kind == PatternKind::kSpiral
          ? 2 * static_cast<double>(p.bscans_per_volume) * p.radius_end_mm /
                std::max(p.radius_end_mm - p.radius_begin_mm, 1e-3 * p.radius_end_mm)
          : std::sqrt(static_cast<double>(p.ascans_per_bscan * p.bscans_per_volume));
  const auto side = static_cast<int64_t>(std::clamp(std::round(pixels), 1.0, 4096.0));
  for (const auto& [name, value] :
       {std::pair{"rows", &grid->rows}, std::pair{"columns", &grid->columns}}) {
    if (*value == 0) *value = side;
    if (*value < 1 || *value > kMostSide)
      return FieldOutOfRange(field + name, *value, 1, kMostSide);
  }
  if (grid->rows * grid->columns > kMostPoints) {
    return InvalidField(
        field + "rows",
        absl::StrCat("times columns is ", grid->rows * grid->columns, "; allowed ", kMostPoints));
  }
  if (const int64_t taps = (radial ? 4 * RadialTaps::Sides(p) : 4) * p.repeats();
      grid->rows * grid->columns > kMostTaps / taps) {
    return InvalidField(
        field + "rows",
        absl::StrCat("times columns is ", grid->rows * grid->columns, "; allowed ",
                     kMostTaps / taps, " where each point is made of ", taps, " A-scans"));
  }
  if (grid->reach_mm == 0) {
    grid->reach_mm = 4 * std::sqrt(p.extent_x_mm * p.extent_y_mm /
                                   static_cast<double>(p.ascans_per_bscan * p.bscans_per_volume));
  }
  if (!std::isfinite(grid->reach_mm) || grid->reach_mm < 1e-6 || grid->reach_mm > 1e4) {
    return FieldNotAllowed(field + "reach_mm", grid->reach_mm, "1e-6 to 1e4");
  }
  // With cells as wide as the reach, their number must fit in memory.
  grid->reach_mm = std::max(grid->reach_mm, 1e-4 * std::max(p.extent_x_mm, p.extent_y_mm));
  grid->centre_x_mm = p.offset_x_mm;
  grid->centre_y_mm = p.offset_y_mm;
  return absl::OkStatus();
}

CartesianTaps MakeCartesianTaps(const Pattern& p, const CartesianGrid& grid,
                                const std::vector<std::pair<int64_t, int64_t>>& missing) {
  switch (p.kind) {
    case PatternKind::kRadial:
    case PatternKind::kRepeatedRadial: return Fill(p, grid, missing, RadialTaps(p));
    case PatternKind::kSpiral: return Fill(p, grid, missing, SpiralTaps(p));
    default: return Fill(p, grid, missing, NearestTaps(p, grid.reach_mm));
  }
}

}  // namespace octavo::pattern
