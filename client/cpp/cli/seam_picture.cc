#include "client/cpp/cli/seam_picture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"

#include "client/cpp/cli/evidence_plot.h"
#include "client/cpp/cli/grey_canvas.h"
#include "client/cpp/cli/grey_picture.h"

namespace octavo::cli {
namespace {

constexpr int64_t kLeastOverlap = 4;  // as the server's search
constexpr int64_t kMostPairs = 64;

/// The columns of a picture [row, columns] from `begin` to `end`.
std::vector<float> Cut(const std::vector<float>& values, int64_t columns, int64_t begin,
                       int64_t end) {
  std::vector<float> out;
  for (auto row = values.begin(); row != values.end(); row += columns)
    out.insert(out.end(), row + begin, row + end);
  return out;
}

}  // namespace

double OverlapCurve::At(double overlap) const {
  const auto after = std::lower_bound(overlaps.begin(), overlaps.end(), overlap);
  if (after == overlaps.end()) return std::numeric_limits<double>::quiet_NaN();
  const auto i = static_cast<size_t>(after - overlaps.begin());
  if (*after == overlap) return correlations[i];
  if (i == 0) return std::numeric_limits<double>::quiet_NaN();
  const double part = (overlap - overlaps[i - 1]) / (overlaps[i] - overlaps[i - 1]);
  return (1 - part) * correlations[i - 1] + part * correlations[i];
}

double OverlapCurve::Best() const {
  double best = std::numeric_limits<double>::quiet_NaN(), most = -2;
  for (size_t i = 0; i < overlaps.size(); ++i) {
    if (!(correlations[i] > most)) continue;  // nor NaN
    most = correlations[i];
    best = overlaps[i];
  }
  return best;
}

OverlapCurve CurveOf(const std::vector<float>& sinogram, int64_t columns, int64_t half_turn,
                     bool axis_right) {
  OverlapCurve curve;
  const int64_t pairs = std::min(half_turn, kMostPairs);
  for (int64_t overlap = kLeastOverlap; overlap <= columns; ++overlap) {
    double a = 0, b = 0, aa = 0, bb = 0, ab = 0;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const int64_t i = pair * half_turn / pairs;
      const float* const first = sinogram.data() + i * columns;
      const float* const second = first + half_turn * columns;
      const int64_t begin = axis_right ? columns - overlap : 0, last = 2 * begin + overlap - 1;
      for (int64_t c = begin; c < begin + overlap; ++c) {
        const double x = first[c], y = second[last - c];
        a += x, b += y, aa += x * x, bb += y * y, ab += x * y;
      }
    }
    const auto count = static_cast<double>(pairs * overlap);
    const double of_first = aa - a * a / count, of_second = bb - b * b / count;
    curve.overlaps.push_back(static_cast<double>(overlap));
    curve.correlations.push_back(of_first > 0 && of_second > 0
                                     ? (ab - a * b / count) / std::sqrt(of_first * of_second)
                                     : std::numeric_limits<double>::quiet_NaN());
  }
  return curve;
}

JoinedPair Join(const Seam& seam) {
  const OppositePair& pair = seam.pair;
  const int64_t added =
      std::max<int64_t>(0, pair.columns - static_cast<int64_t>(std::ceil(seam.overlap)));
  const int64_t before = seam.axis_right ? 0 : added;  // columns in front of those of the detector
  JoinedPair joined{.columns = pair.columns + added, .values = {}, .axes = {}};
  for (int64_t row = 0; row < pair.rows; ++row) {
    const double axis = pair.axes[static_cast<size_t>(row)];
    const float* const first = pair.first.data() + row * pair.columns;
    const float* const second = pair.second.data() + row * pair.columns;
    joined.axes.push_back(axis + static_cast<double>(before));
    for (int64_t c = -before; c < joined.columns - before; ++c) {
      const auto column = static_cast<double>(c);
      const bool own = seam.axis_right ? column <= axis : column >= axis;
      if (own && c >= 0 && c < pair.columns) {
        joined.values.push_back(first[c]);
        continue;
      }
      const double at = std::clamp(2 * axis - column, 0.0, static_cast<double>(pair.columns - 1));
      const auto left = std::min(static_cast<int64_t>(at), pair.columns - 2);
      const auto part = static_cast<float>(at - static_cast<double>(left));
      joined.values.push_back((1 - part) * second[left] + part * second[left + 1]);
    }
  }
  return joined;
}

bool WriteSeamPicture(const std::string& path, const Seam& seam, const OverlapCurve& curve,
                      double degrees) {
  const OppositePair& pair = seam.pair;
  const JoinedPair joined = Join(seam);
  const Tile whole(pair.rows, joined.columns, kPageColumns - 2 * kMargin);
  // The overlap, and as many columns beside it.
  const int64_t wide = std::clamp<int64_t>(std::lround(2 * seam.overlap),
                                           std::min<int64_t>(16, pair.columns), pair.columns);
  const int64_t begin = seam.axis_right ? pair.columns - wide : 0, end = begin + wide;
  const Tile tile(pair.rows, wide);
  const int64_t plot = Plot::rows() + kMargin;
  GreyCanvas page(kMargin + plot + whole.rows() + kMargin + tile.rows() + kMargin, kPageColumns);
  int64_t top = kMargin;
  Plot of(page, top, kMargin, kPageColumns - 2 * kMargin, "correlation of both halves / overlap",
          RangeOf(curve.overlaps, 0), RangeOf(curve.correlations, 0.03));
  of.Upright(seam.overlap, absl::StrFormat("overlap %.2f", seam.overlap));
  of.Curve(curve.overlaps, curve.correlations);
  top += plot;
  whole.Draw(page, top, kMargin, "joined at the axis", GreysOf(joined.values));
  whole.DrawAxis(page, top, kMargin, joined.axes);
  top += whole.rows() + kMargin;

  const std::vector<float> mirrored = pair.Mirrored(0),
                           one = Cut(pair.first, pair.columns, begin, end),
                           other = Cut(mirrored, pair.columns, begin, end);
  std::vector<float> both = one;  // with one contrast
  both.insert(both.end(), other.begin(), other.end());
  const std::vector<uint8_t> greys = GreysOf(both);
  const auto half = greys.begin() + std::ssize(one);
  std::vector<double> axes = pair.axes;
  for (double& axis : axes) axis -= static_cast<double>(begin);
  const int64_t step = (kPageColumns - kMargin) / 3;
  tile.Draw(page, top, kMargin, "seam / projection", {greys.begin(), half});
  tile.DrawAxis(page, top, kMargin, axes);
  tile.Draw(page, top, kMargin + step, absl::StrFormat("%.4g degrees on / mirrored", degrees),
            {half, greys.end()});
  tile.DrawAxis(page, top, kMargin + step, axes);
  tile.Draw(page, top, kMargin + 2 * step,
            absl::StrFormat("difference x 4 / %.4f", pair.Difference(0)),
            DifferenceGreys(one, other));
  return page.Write(path);
}

}  // namespace octavo::cli
