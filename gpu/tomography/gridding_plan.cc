#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "tbb/parallel_for.h"

#include "gpu/device/fft_length.h"
#include "gpu/tomography/gridding.h"

namespace octavo::inline gpu {
namespace {

constexpr double kPi = std::numbers::pi;
// The frequency up to which samples are taken, in cycles per bin (gridding.h, Interpolation).
constexpr double kReach = 0.58;

// The least width whose error, exp(−π W √(1 − 1/σ)) but for a small factor, is within the accuracy.
int KernelWidth(double accuracy, double oversampling) {
  constexpr double kFactor = 1.5;
  const double width = std::log(kFactor / accuracy) / (kPi * std::sqrt(1 - 1 / oversampling));
  return std::clamp(static_cast<int>(std::ceil(width)), math::GridKernel::kLeastWidth,
                    math::GridKernel::kMostWidth);
}

// Σ x^k / (k!)² (β/2)^2k of s = x²: I0(β √s).
double BesselI0(double beta, double s) {
  double term = 1, sum = 1;
  for (int k = 1; k < 200 && term > 1e-17 * sum; ++k) {
    term *= beta * beta * s / (4.0 * k * k);
    sum += term;
  }
  return sum;
}

// The polynomial through the function's values at the nodes of Chebyshev on [0, 1]: Newton's form,
// multiplied out. Its degree is at most 11 and its coefficients are moderate.
math::GridKernel MakeKernel(int width, double oversampling) {
  // Beatty, Nishimura and Pauly 2005, equation 5.
  const double part = width / oversampling * (oversampling - 0.5),
               beta = kPi * std::sqrt(part * part - 0.8);
  const int terms = math::GridKernel::TermsOf(width);
  std::vector<double> at, difference;
  for (int i = 0; i < terms; ++i) {
    at.push_back(0.5 + 0.5 * std::cos(kPi * (i + 0.5) / terms));
    difference.push_back(BesselI0(beta, at.back()) / BesselI0(beta, 1));
  }
  for (int order = 1; order < terms; ++order) {
    for (int i = terms - 1; i >= order; --i) {
      const auto to = static_cast<size_t>(i), from = static_cast<size_t>(i - order);
      difference[to] = (difference[to] - difference[to - 1]) / (at[to] - at[from]);
    }
  }
  std::vector<double> sum(static_cast<size_t>(terms), 0.0);
  for (int i = terms - 1; i >= 0; --i) {  // sum = sum · (s − at[i]) + difference[i]
    for (int k = terms - 1; k >= 0; --k) {
      const auto to = static_cast<size_t>(k);
      sum[to] = (k > 0 ? sum[to - 1] : 0.0) - at[static_cast<size_t>(i)] * sum[to];
    }
    sum[0] += difference[static_cast<size_t>(i)];
  }
  math::GridKernel kernel{.width = width, .inverse_half = 2.0f / static_cast<float>(width)};
  std::copy(sum.begin(), sum.end(), kernel.terms);
  return kernel;
}

// The integral of f from `from` to `to`, by Simpson's rule.
template <class F>
double Integral(double from, double to, int parts, const F& f) {
  double sum = 0;
  for (int i = 0; i <= parts; ++i) {
    const double weight = i == 0 || i == parts ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * f(from + (to - from) * i / parts);
  }
  return (to - from) * sum / (3 * parts);
}

// The transform of the kernel at a frequency in cycles per grid point.
double KernelTransform(const math::GridKernel& kernel, double frequency) {
  const double half = 0.5 * kernel.width;
  return 2 * half * Integral(0, 1, 256, [&](double part) {
           const double s = 1 - part * part;
           double value = 0;
           for (int k = math::GridKernel::TermsOf(kernel.width) - 1; k >= 0; --k)
             value = value * s + static_cast<double>(kernel.terms[k]);
           return value * std::cos(2 * kPi * frequency * half * part);
         });
}

double Sinc(double x) { return x == 0 ? 1 : std::sin(kPi * x) / (kPi * x); }

// The factor of the interpolation at a frequency in cycles per bin (gridding.h).
double InterpolationAt(math::RayInterpolation how, double frequency) {
  const double linear = Sinc(frequency) * Sinc(frequency) * (1 + 0.17 * frequency * frequency);
  switch (how) {
    case math::RayInterpolation::kNearest: return std::sqrt(linear);
    case math::RayInterpolation::kLinear: return linear;
    case math::RayInterpolation::kCubic: break;
  }
  // Keys 1981, a = −1/2: the kernel's transform.
  const auto wave = [&](double t) { return std::cos(2 * kPi * frequency * t); };
  return 2 *
         (Integral(0, 1, 64, [&](double t) { return ((1.5 * t - 2.5) * t * t + 1) * wave(t); }) +
          Integral(1, 2, 64,
                   [&](double t) { return (((-0.5 * t + 2.5) * t - 4) * t + 2) * wave(t); }));
}

// The filter's transform at the frequencies 0 … L/2: that of the very taps of FBP.
std::vector<double> FilterTransform(const TomographyConfig& c, int64_t length) {
  const ProjectionFilterTaps taps = DesignProjectionFilter(c);
  const float* middle = taps.taps.data() + c.detectors - 1;
  std::vector<double> cosines(static_cast<size_t>(length));
  for (int64_t k = 0; k < length; ++k)
    cosines[static_cast<size_t>(k)] =
        std::cos(2 * kPi * static_cast<double>(k) / static_cast<double>(length));
  std::vector<std::pair<int64_t, double>> used;  // every second tap of the plain ramp is 0
  for (int64_t n = 1; n < c.detectors; ++n) {
    if (middle[n] != 0) used.emplace_back(n, 2 * static_cast<double>(middle[n]));
  }
  std::vector<double> out;
  for (int64_t k = 0; k <= length / 2; ++k) {
    double value = static_cast<double>(middle[0]);
    for (const auto& [n, tap] : used) value += tap * cosines[static_cast<size_t>(k * n % length)];
    out.push_back(value);
  }
  return out;
}

// The lines that may reach a box of the grid: those within the angle under which the circle around
// the box is seen from the origin. x, y: the box's first point.
math::TileLines LinesThrough(const GridGeometry& grid, double x, double y) {
  const double columns = static_cast<double>(grid.tiles.width - 1 + grid.width),
               rows = static_cast<double>(grid.tiles.height - 1 + grid.width),
               radius = 0.5 * std::hypot(columns, rows) + 1e-3,
               middle_x = x + 0.5 * static_cast<double>(grid.tiles.width - 1),
               middle_y = y + 0.5 * static_cast<double>(grid.tiles.height - 1),
               distance = std::hypot(middle_x, middle_y);
  const std::vector<double>& directions = grid.directions;
  const auto count = static_cast<int32_t>(directions.size());
  if (distance - radius > grid.reach) return {};
  if (distance <= radius) return {.begin = 0, .count = count};
  const double around = std::asin(radius / distance) + 1e-6;
  const auto turned = [](double angle) { return angle - kPi * std::floor(angle / kPi); };
  const auto place = [&](double angle) {
    return static_cast<int32_t>(std::lower_bound(directions.begin(), directions.end(), angle) -
                                directions.begin());
  };
  const double direction = std::atan2(middle_y, middle_x);
  if (2 * around >= kPi) return {.begin = 0, .count = count};
  const double lo = turned(direction - around), hi = turned(direction + around);
  const int32_t begin = place(lo), end = place(hi);
  if (lo <= hi) return {.begin = begin, .count = end - begin};
  return {.begin = begin, .count = count - begin + end};
}

BusyTiles FindBusy(const std::vector<math::TileLines>& lines, const GridTiles& t) {
  BusyTiles busy{.column_begin = t.columns, .row_begin = t.rows};
  for (int64_t row = 0; row < t.rows; ++row) {
    for (int64_t column = 0; column < t.columns; ++column) {
      if (lines[static_cast<size_t>(row * t.columns + column)].count <= kBusyLines) continue;
      busy.column_begin = std::min(busy.column_begin, column);
      busy.column_end = std::max(busy.column_end, column + 1);
      busy.row_begin = std::min(busy.row_begin, row);
      busy.row_end = std::max(busy.row_end, row + 1);
    }
  }
  return busy;
}

// The directions of the lines on the grid, whose y runs downwards, 0 … π; in the order of the
// configuration.
std::vector<double> DirectionsOf(const std::vector<double>& angles_rad) {
  std::vector<double> all;
  for (const double angle : angles_rad) {
    const double direction = std::atan2(-std::sin(angle), std::cos(angle));
    all.push_back(direction < 0 ? direction + kPi : direction >= kPi ? direction - kPi : direction);
  }
  return all;
}

}  // namespace

GridLines FindLines(const GridGeometry& geometry) {
  const GridTiles& t = geometry.tiles;
  GridLines out{.lines = std::vector<math::TileLines>(static_cast<size_t>(t.count())), .busy = {}};
  tbb::parallel_for(int64_t{0}, t.rows, [&](int64_t row) {
    for (int64_t column = 0; column < t.columns; ++column) {
      for (int i = 0; i < kTileImages; ++i) {
        const TileImage image = t.ImageOf(column, row, i);
        if (image.index < 0) continue;
        const int64_t x = column * t.width - geometry.grid_size / 2 + image.shift_x,
                      y = row * t.height - geometry.grid_size / 2 + image.shift_y;
        out.lines[static_cast<size_t>(image.index)] =
            LinesThrough(geometry, static_cast<double>(x), static_cast<double>(y));
      }
    }
  });
  out.busy = FindBusy(out.lines, t);
  return out;
}

GridTiles TilesOf(const GriddingShape& shape, const GridChoice& choice) {
  GridTiles tiles{.width = choice.tile_columns,
                  .height = choice.tile_rows,
                  .columns = shape.grid_size / choice.tile_columns,
                  .rows = shape.grid_size / choice.tile_rows};
  // How far samples and their kernels reach beyond the grid.
  const auto beyond = static_cast<int64_t>(
      std::ceil((kReach - 0.5) * static_cast<double>(shape.grid_size) + 0.5 * shape.width));
  tiles.edge_columns = std::min(tiles.columns, beyond / tiles.width + 1);
  tiles.edge_rows = std::min(tiles.rows, beyond / tiles.height + 1);
  return tiles;
}

GriddingShape ShapeGridding(const TomographyConfig& c, const TomographyGrid& plan,
                            const GridChoice& choice) {
  GriddingShape shape{.image_size = plan.image_size,
                      .lines = static_cast<int64_t>(c.angles_rad.size()),
                      .detectors = c.detectors};
  shape.width = KernelWidth(c.fourier_accuracy, choice.oversampling);
  // With at least two steps no sample lies beyond both edges, its kernel included.
  const auto points =
      static_cast<int64_t>(std::ceil(choice.oversampling * static_cast<double>(shape.image_size)));
  shape.grid_size =
      kGridStep * NextFastLength(std::max<int64_t>(2, (points + kGridStep - 1) / kGridStep));
  // How far from the axis pixels of the result are projected, and how far the detector reaches from
  // it to either side.
  const double half = 0.5 * static_cast<double>(shape.image_size - 1),
               reach = std::min(static_cast<double>(plan.radius), half * std::numbers::sqrt2),
               last = static_cast<double>(c.detectors - 1);
  double nearest = last, farthest = 0;
  for (const float center : plan.centers) {
    const double left = static_cast<double>(center), right = last - left;
    nearest = std::min({nearest, left, right});
    farthest = std::max({farthest, left, right});
  }
  shape.cut = reach > nearest + 1;
  // The convolution's result reaches detectors − 1 bins beyond the detector (or, cut, ends there);
  // one period farther it must not come back into the picture. With extended edges each half of the
  // padding is as long as the filter's reach, or as the picture's beyond the detector.
  const double beyond = shape.cut ? 0 : last, outside = std::max(0.0, reach - nearest);
  double length = std::max(2 * last + 1, std::floor(farthest + beyond + reach) + 1);
  if (c.extend_edges)
    length = std::max(length, last + 1 + 2 * std::max(last, shape.cut ? 0 : std::ceil(outside)));
  shape.length = 2 * NextFastLength((static_cast<int64_t>(length) + 1) / 2);
  shape.reach = static_cast<int64_t>(kReach * static_cast<double>(shape.length));
  return shape;
}

GriddingPlan PlanGridding(const TomographyConfig& c, const GriddingShape& shape,
                          const GridChoice& choice) {
  GriddingPlan plan{.shape = shape,
                    .kernel = MakeKernel(shape.width, static_cast<double>(shape.grid_size) /
                                                          static_cast<double>(shape.image_size))};
  const std::vector<double> all = DirectionsOf(c.angles_rad);
  std::vector<int32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return all[static_cast<size_t>(a)] < all[static_cast<size_t>(b)];
  });
  const std::vector<double> weights = AngleWeights(c.angles_rad);
  // The middle of an image of even size lies between pixels.
  const double off = shape.image_size % 2 == 0 ? 0.5 : 0;
  plan.geometry = {.directions = {},
                   .grid_size = shape.grid_size,
                   .width = shape.width,
                   .reach = kReach * static_cast<double>(shape.grid_size),
                   .tiles = TilesOf(shape, choice)};
  for (const int32_t i : order) {
    const double angle = c.angles_rad[static_cast<size_t>(i)], cosine = std::cos(angle),
                 sine = std::sin(angle);
    plan.geometry.directions.push_back(all[static_cast<size_t>(i)]);
    plan.lines.push_back(
        {.cosine = static_cast<float>(cosine),
         .minus_sine = static_cast<float>(-sine),
         .weight = static_cast<float>(weights[static_cast<size_t>(i)] /
                                      (c.pixel_size * static_cast<double>(shape.length))),
         .projection = i,
         .shift = off * (cosine - sine)});
  }
  const std::vector<double> filter = FilterTransform(c, shape.length);
  for (int64_t k = 0; k <= shape.reach; ++k) {
    const double blur = InterpolationAt(c.interpolation,
                                        static_cast<double>(k) / static_cast<double>(shape.length));
    const double value = filter[static_cast<size_t>(std::min(k, shape.length - k))];
    plan.response.push_back(static_cast<float>(shape.cut ? blur : blur * value));
  }
  if (shape.cut) {
    for (const double value : filter)
      plan.filter.push_back(static_cast<float>(value / static_cast<double>(shape.length)));
  }
  for (int64_t n = 0; n < shape.image_size; ++n) {
    const int64_t from_middle = n - shape.image_size / 2;
    const double transform = KernelTransform(
        plan.kernel, static_cast<double>(from_middle) / static_cast<double>(shape.grid_size));
    plan.deapodisation.push_back(math::Chessboard(from_middle) / static_cast<float>(transform));
  }
  return plan;
}

}  // namespace octavo::inline gpu
