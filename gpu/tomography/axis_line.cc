#include "gpu/tomography/axis_line.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace octavo::inline gpu {
namespace {

constexpr double kLeastUncertainty =
    0.05;                            // columns: no search is better than that, whatever its noise
constexpr double kHuber = 1.345;     // standard deviations; 95 % efficient for normal errors
constexpr double kToSigma = 1.4826;  // from the median deviation of normal errors
constexpr double kFar = 3;           // standard deviations, of a point that is no part of the line
constexpr double kSignificant = 2;
constexpr double kLeastShift = 0.1;  // columns
constexpr int kRounds = 50;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 != 0 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

double SigmaOf(const AxisPoint& point) { return std::max(point.uncertainty, kLeastUncertainty); }

struct Line {
  double offset = 0, slope = 0;
  double Residual(const AxisPoint& p) const { return p.center - offset - slope * p.row; }
};

/// Nothing if the points have one row only.
std::optional<Line> RepeatedMedians(const std::vector<AxisPoint>& points) {
  std::vector<double> slopes, offsets;
  for (const AxisPoint& p : points) {
    std::vector<double> from_here;
    for (const AxisPoint& q : points) {
      if (q.row != p.row) from_here.push_back((q.center - p.center) / (q.row - p.row));
    }
    if (!from_here.empty()) slopes.push_back(Median(std::move(from_here)));
  }
  if (slopes.empty()) return std::nullopt;
  Line line{.offset = 0, .slope = Median(std::move(slopes))};
  for (const AxisPoint& p : points) offsets.push_back(line.Residual(p));
  line.offset = Median(std::move(offsets));
  return line;
}

/// Sums of a weighted least-squares line, about the weighted mean row.
struct LeastSquares {
  double weight = 0, mean_row = 0, mean_center = 0, spread = 0, moment = 0;

  LeastSquares(const std::vector<AxisPoint>& points, const std::vector<double>& weights) {
    for (size_t i = 0; i < points.size(); ++i) {
      weight += weights[i];
      mean_row += weights[i] * points[i].row;
      mean_center += weights[i] * points[i].center;
    }
    mean_row /= weight;
    mean_center /= weight;
    for (size_t i = 0; i < points.size(); ++i) {
      const double row = points[i].row - mean_row;
      spread += weights[i] * row * row;
      moment += weights[i] * row * (points[i].center - mean_center);
    }
  }
  Line line() const {
    const double slope = spread > 0 ? moment / spread : 0;
    return {.offset = mean_center - slope * mean_row, .slope = slope};
  }
};

/// How many times the points scatter more than their uncertainties say; 1 or more.
double ScaleOf(const std::vector<AxisPoint>& points, const Line& line) {
  std::vector<double> deviations;
  for (const AxisPoint& p : points) deviations.push_back(std::abs(line.Residual(p)) / SigmaOf(p));
  return std::max(1.0, kToSigma * Median(std::move(deviations)));
}

bool IsNear(const AxisPoint& point, const Line& line, double scale) {
  return std::abs(line.Residual(point)) <= kFar * scale * SigmaOf(point);
}

Line HuberLine(const std::vector<AxisPoint>& points, Line line, double scale) {
  std::vector<double> weights(points.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < points.size(); ++i) {
      const double sigma = SigmaOf(points[i]),
                   deviation = std::abs(line.Residual(points[i])) / (scale * sigma);
      weights[i] = (deviation <= kHuber ? 1 : kHuber / deviation) / (sigma * sigma);
    }
    const Line next = LeastSquares(points, weights).line();
    const bool settled = std::abs(next.slope - line.slope) <= 1e-12 * (1 + std::abs(line.slope)) &&
                         std::abs(next.offset - line.offset) <= 1e-9;
    line = next;
    if (settled) break;
  }
  return line;
}

}  // namespace

bool AxisLine::Leans(double rows) const {
  return std::abs(slope) > kSignificant * slope_uncertainty &&
         std::abs(slope) * (rows - 1) >= kLeastShift;
}

std::optional<AxisLine> FitAxisLine(const std::vector<AxisPoint>& points) {
  std::vector<AxisPoint> known;
  for (const AxisPoint& p : points) {
    if (p.determined) known.push_back(p);
  }
  if (known.size() < 3) return std::nullopt;
  const std::optional<Line> start = RepeatedMedians(known);
  if (!start.has_value()) return std::nullopt;
  // Huber's weights bound what a point does, but not what it does from the end of a long lever:
  // what is far from the start takes no part.
  const double first_scale = ScaleOf(known, *start);
  std::vector<AxisPoint> near;
  for (const AxisPoint& p : known) {
    if (IsNear(p, *start, first_scale)) near.push_back(p);
  }
  if (near.size() < 2) return std::nullopt;
  const Line robust = HuberLine(near, *start, first_scale);
  const double scale = ScaleOf(near, robust);

  AxisLine out;
  std::vector<double> weights;
  for (const AxisPoint& p : known) {
    const double sigma = SigmaOf(p);
    const bool on_line = IsNear(p, robust, scale);
    weights.push_back(on_line ? 1 / (sigma * sigma) : 0);
    out.points_used += on_line ? 1 : 0;
  }
  if (out.points_used < 2) return std::nullopt;
  const LeastSquares sums(known, weights);
  const Line line = sums.line();
  if (!(sums.spread > 0)) return std::nullopt;
  double squares = 0, weighted = 0;
  for (size_t i = 0; i < known.size(); ++i) {
    if (weights[i] == 0) continue;
    const double residual = line.Residual(known[i]);
    squares += residual * residual;
    weighted += weights[i] * residual * residual;
  }
  const auto count = static_cast<double>(out.points_used);
  const double excess = std::max(1.0, out.points_used > 2 ? weighted / (count - 2) : scale * scale);
  out.offset = line.offset;
  out.slope = line.slope;
  out.mean_row = sums.mean_row;
  out.mean_uncertainty = std::sqrt(excess / sums.weight);
  out.slope_uncertainty = std::sqrt(excess / sums.spread);
  out.offset_uncertainty = std::hypot(out.mean_uncertainty, out.slope_uncertainty * sums.mean_row);
  out.residual_rms = std::sqrt(squares / count);
  size_t next = 0;
  for (const AxisPoint& p : points) out.used.push_back(p.determined && weights[next++] != 0);
  return out;
}

AxisLine TurnedBack(const AxisLine& found, double degrees, double middle_row,
                    double middle_column) {
  const double angle = degrees * std::numbers::pi / 180, sine = std::sin(angle),
               cosine = std::cos(angle), across = found.At(middle_row) - middle_column;
  AxisLine line = found;
  line.slope = std::tan(std::atan(found.slope) + angle);
  // The place of the turned middle row where the line crosses it.
  const double row = middle_row - across * sine, column = middle_column + across * cosine;
  line.offset = column - line.slope * row;
  line.mean_row = middle_row + (found.mean_row - middle_row) * cosine -
                  (found.At(found.mean_row) - middle_column) * sine;
  line.slope_uncertainty *= (1 + line.slope * line.slope) / (1 + found.slope * found.slope);
  line.offset_uncertainty =
      std::hypot(line.mean_uncertainty, line.slope_uncertainty * line.mean_row);
  return line;
}

}  // namespace octavo::inline gpu
