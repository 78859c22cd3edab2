#include "tests/gpu/tomography/preprocess_model.h"

#include <algorithm>
#include <cmath>

namespace octavo::testing {
namespace {

int64_t Reflected(int64_t i, int64_t n) { return i < 0 ? -1 - i : i >= n ? 2 * n - 1 - i : i; }

double MedianOf(Doubles values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 != 0 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/// Frames [frame, row, column] with outliers removed.
Doubles Cleaned(const Doubles& in, const OutlierRemoval& o, int64_t frames, int64_t rows,
                int64_t columns, int64_t* count) {
  if (o.window == 0) return in;
  Doubles out = in;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        Doubles window;
        for (int64_t y = r - o.window / 2; y <= r + o.window / 2; ++y) {
          for (int64_t x = c - o.window / 2; x <= c + o.window / 2; ++x) {
            window.push_back(in[static_cast<size_t>((f * rows + Reflected(y, rows)) * columns +
                                                    Reflected(x, columns))]);
          }
        }
        double& value = out[static_cast<size_t>((f * rows + r) * columns + c)];
        const double median = MedianOf(window);
        if (value - median >= o.difference || (o.dark_too && median - value >= o.difference)) {
          value = median;
          ++*count;
        }
      }
    }
  }
  return out;
}

Doubles Averaged(const Doubles& frames, int64_t first, int64_t count, int64_t pixels,
                 FieldAverage how) {
  Doubles out;
  for (int64_t i = 0; i < pixels; ++i) {
    Doubles values;
    for (int64_t f = first; f < first + count; ++f)
      values.push_back(frames[static_cast<size_t>(f * pixels + i)]);
    double sum = 0;
    for (const double v : values) sum += v;
    out.push_back(how == FieldAverage::kMedian ? MedianOf(values)
                                               : sum / static_cast<double>(count));
  }
  return out;
}

/// The kernel of Keys (1981) with a = -1/2.
double Keys(double x) {
  x = std::abs(x);
  if (x < 1) return 1 - 2.5 * x * x + 1.5 * x * x * x;
  return x < 2 ? 2 - 4 * x + 2.5 * x * x - 0.5 * x * x * x : 0;
}

}  // namespace

Doubles TurnModel(const Doubles& in, int64_t frames, int64_t rows, int64_t columns,
                  double degrees) {
  const double angle = degrees * std::acos(-1.0) / 180,
               middle_row = 0.5 * static_cast<double>(rows - 1),
               middle_column = 0.5 * static_cast<double>(columns - 1);
  Doubles out;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const double v = static_cast<double>(r) - middle_row,
                     u = static_cast<double>(c) - middle_column;
        const double y = middle_row + v * std::cos(angle) - u * std::sin(angle),
                     x = middle_column + u * std::cos(angle) + v * std::sin(angle);
        double sum = 0;
        const auto above = static_cast<int64_t>(std::floor(y)),
                   left = static_cast<int64_t>(std::floor(x));
        for (int64_t i = above - 1; i <= above + 2; ++i) {
          for (int64_t k = left - 1; k <= left + 2; ++k) {
            const int64_t from = (f * rows + std::clamp<int64_t>(i, 0, rows - 1)) * columns +
                                 std::clamp<int64_t>(k, 0, columns - 1);
            sum += Keys(y - static_cast<double>(i)) * Keys(x - static_cast<double>(k)) *
                   in[static_cast<size_t>(from)];
          }
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

Doubles PrepareTurnedModel(const PrepareConfig& c, const Doubles& raw, const Doubles& flats,
                           const Doubles& darks, PrepareCounts* counts) {
  PrepareConfig first = c;  // the transmissions of all pixels
  first.roll = {};
  first.bin_rows = first.bin_columns = 1;
  first.crop_row = first.crop_rows = first.crop_column = first.crop_columns = 0;
  first.air_left = first.air_right = 0;
  first.minus_log = false;
  const Doubles by_row = PrepareModel(first, raw, flats, darks, counts);
  const int64_t angles = c.angles / c.bin_angles;
  Doubles frames;  // [angle, row, column]
  for (int64_t a = 0; a < angles; ++a) {
    for (int64_t r = 0; r < c.rows; ++r) {
      const auto from = by_row.begin() + (r * angles + a) * c.columns;
      frames.insert(frames.end(), from, from + c.columns);
    }
  }
  frames = TurnModel(frames, angles, c.rows, c.columns, c.roll.degrees);
  const PreparedShape shape = CheckPrepare(c).value();
  Doubles binned;
  for (int64_t a = 0; a < angles; ++a) {
    for (int64_t s = 0; s < shape.slices; ++s) {
      for (int64_t d = 0; d < shape.detectors; ++d) {
        double sum = 0;
        for (int64_t i = 0; i < c.bin_rows * c.bin_columns; ++i) {
          const int64_t row = c.crop_row + s * c.bin_rows + i / c.bin_columns,
                        column = c.crop_column + d * c.bin_columns + i % c.bin_columns;
          sum += frames[static_cast<size_t>((a * c.rows + row) * c.columns + column)];
        }
        binned.push_back(sum / static_cast<double>(c.bin_rows * c.bin_columns));
      }
    }
  }
  PrepareConfig rest;  // air and logarithm
  rest.dtype = rest.field_dtype = DType::kF32;
  rest.angles = angles;
  rest.rows = shape.slices;
  rest.columns = shape.detectors;
  rest.air_left = c.air_left;
  rest.air_right = c.air_right;
  rest.minus_log = c.minus_log;
  rest.log_floor = c.log_floor;
  return PrepareModel(rest, binned, {}, {}, counts);
}

Doubles PrepareModel(const PrepareConfig& c, Doubles raw, Doubles flats, Doubles darks,
                     PrepareCounts* counts) {
  // Outlier removal ignores the projections that binning leaves over.
  raw = Cleaned(raw, c.outliers, c.angles / c.bin_angles * c.bin_angles, c.rows, c.columns,
                &counts->outliers);
  flats = Cleaned(flats, c.outliers, c.flats, c.rows, c.columns, &counts->outliers);
  darks = Cleaned(darks, c.outliers, c.darks, c.rows, c.columns, &counts->outliers);
  const int64_t pixels = c.rows * c.columns;
  const Doubles dark = c.darks > 0 ? Averaged(darks, 0, c.darks, pixels, c.dark_average)
                                   : Doubles(static_cast<size_t>(pixels), 0.0);
  std::vector<Doubles> fields;
  const std::vector<int64_t> series =
      c.flat_series.empty() ? std::vector<int64_t>{c.flats} : c.flat_series;
  for (int64_t i = 0, first = 0; c.flats > 0 && i < static_cast<int64_t>(series.size());
       first += series[static_cast<size_t>(i++)]) {
    fields.push_back(
        Averaged(flats, first, series[static_cast<size_t>(i)], pixels, c.flat_average));
  }
  const auto flat_at = [&](int64_t angle, size_t pixel) {
    if (fields.size() == 1) return fields[0][pixel];
    const double t = c.angle_times.empty() ? static_cast<double>(angle)
                                           : c.angle_times[static_cast<size_t>(angle)];
    if (t <= c.flat_times.front()) return fields.front()[pixel];
    if (t >= c.flat_times.back()) return fields.back()[pixel];
    size_t i = 0;
    while (c.flat_times[i + 1] <= t) ++i;
    const double w = (t - c.flat_times[i]) / (c.flat_times[i + 1] - c.flat_times[i]);
    return (1 - w) * fields[i][pixel] + w * fields[i + 1][pixel];
  };
  const PreparedShape shape = CheckPrepare(c).value();
  Doubles out(static_cast<size_t>(shape.elements()));
  for (int64_t a = 0; a < shape.angles; ++a) {
    for (int64_t s = 0; s < shape.slices; ++s) {
      Doubles row;
      for (int64_t d = 0; d < shape.detectors; ++d) {
        double light = 0, open = 0;
        bool unlit = false;
        for (int64_t ka = 0; ka < c.bin_angles; ++ka) {
          for (int64_t kr = 0; kr < c.bin_rows; ++kr) {
            for (int64_t kc = 0; kc < c.bin_columns; ++kc) {
              const int64_t angle = a * c.bin_angles + ka;
              const auto pixel =
                  static_cast<size_t>((c.crop_row + s * c.bin_rows + kr) * c.columns +
                                      c.crop_column + d * c.bin_columns + kc);
              light += raw[static_cast<size_t>(angle * pixels) + pixel] - dark[pixel];
              const double beam = fields.empty() ? 1.0 : flat_at(angle, pixel) - dark[pixel];
              unlit = unlit || beam < c.denominator_floor;
              open += std::max(beam, c.denominator_floor);
            }
          }
        }
        counts->unlit += unlit;
        row.push_back(light / open);
        if (c.has_cutoff && row.back() > c.cutoff) {
          row.back() = c.cutoff;
          ++counts->cut;
        }
      }
      double left = 0, right = 0;
      for (int64_t d = 0; d < c.air_left; ++d)
        left += row[static_cast<size_t>(d)] / static_cast<double>(c.air_left);
      for (int64_t d = 0; d < c.air_right; ++d)
        right +=
            row[static_cast<size_t>(shape.detectors - 1 - d)] / static_cast<double>(c.air_right);
      if (c.air_left == 0) left = right;
      if (c.air_right == 0) right = left;
      for (int64_t d = 0; d < shape.detectors; ++d) {
        double t = row[static_cast<size_t>(d)];
        if (c.air_left + c.air_right > 0)
          t /= left +
               (right - left) * static_cast<double>(d) / static_cast<double>(shape.detectors - 1);
        double value = t;
        if (!std::isfinite(t) && !(c.minus_log && t < 0)) {
          value = c.not_finite_value;
          ++counts->not_finite;
        } else if (c.minus_log) {
          counts->floored += t < c.log_floor;
          value = -std::log(std::max(t, c.log_floor));
        }
        out[static_cast<size_t>((s * shape.angles + a) * shape.detectors + d)] = value;
      }
    }
  }
  return out;
}

}  // namespace octavo::testing
