#include "server/tomography/tile_correlation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "server/tomography/tile_shift.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kCoarseLags = 8;      // to either side, that the coarsest level looks at
constexpr int64_t kLeastCoarse = 12;    // rows and columns that its pictures share
constexpr double kMostWork = 2e9;       // pixels of pictures times lags, of the coarsest level
constexpr int64_t kHighPass = 8;        // pixels to either side whose mean is left out, at most
constexpr int64_t kPartOfHighPass = 6;  // of what the pictures share
constexpr int64_t kSmooth = 4;          // pixels to either side that the smoothing takes
constexpr int64_t kFewPixels = 32;      // that two pictures must share
constexpr double kLeastShare = 0.25;    // of what they share in the middle of the range
constexpr size_t kCandidates = 5;       // maxima of the coarsest level that are followed
constexpr int64_t kFarLag = 3;          // pixels from a maximum at which it must have fallen
constexpr double kSmoothedPixels = 5;   // along an axis, that share their noise after it
constexpr double kLeastCorrelation = 0.05, kLeastFall = 0.1;
constexpr double kHighCorrelation = 0.5;  // from which on pictures show more than noise
constexpr double kNearOne = 1 - 1e-9;
constexpr double kDeviationsOfPeak = 4.5, kDeviationsOfFall = 3;  // of the correlation of noise

Picture Halved(const Picture& in) {
  Picture out{.rows = in.rows / 2, .columns = in.columns / 2, .pixels = {}};
  out.pixels.resize(static_cast<size_t>(out.rows * out.columns));
  for (int64_t r = 0; r < out.rows; ++r) {
    const float *a = in.row(2 * r), *b = in.row(2 * r + 1);
    for (int64_t c = 0; c < out.columns; ++c)
      out.row(r)[c] = 0.25F * (a[2 * c] + a[2 * c + 1] + b[2 * c] + b[2 * c + 1]);
  }
  return out;
}

/// A line of numbers through memory.
struct Line {
  float* data = nullptr;
  int64_t count = 0, stride = 1;
  float& at(int64_t i) const { return data[i * stride]; }
};

/// Pixels to either side of one along both axes.
struct Reach {
  int64_t rows = 0, columns = 0;
};

/// f(line, reach along it) for all rows and columns.
template <class F>
void ForLines(Picture& picture, const Reach& reach, const F& f) {
  for (int64_t r = 0; r < picture.rows; ++r)
    f(Line{.data = picture.row(r), .count = picture.columns, .stride = 1}, reach.columns);
  for (int64_t c = 0; c < picture.columns; ++c)
    f(Line{.data = picture.pixels.data() + c, .count = picture.rows, .stride = picture.columns},
      reach.rows);
}

/// The mean of each value and those within reach, of those that there are.
void Average(Picture& picture, const Reach& reach) {
  std::vector<double> sums;  // before each value
  ForLines(picture, reach, [&](const Line& line, int64_t most) {
    sums.assign(1, 0.0);
    for (int64_t i = 0; i < line.count; ++i)
      sums.push_back(sums.back() + static_cast<double>(line.at(i)));
    for (int64_t i = 0; i < line.count; ++i) {
      const int64_t begin = std::max<int64_t>(0, i - most),
                    end = std::min(line.count, i + most + 1);
      line.at(i) =
          static_cast<float>((sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(begin)]) /
                             static_cast<double>(end - begin));
    }
  });
}

/// What varies over a few pixels: neither the noise of single ones nor changes beyond `reach`.
/// Without `ends` at either end, where the filters lack what lies outside: there the same object
/// would look different in two pictures, and shift the maximum.
Picture BandOf(const Picture& in, const Reach& reach, const Reach& ends) {
  Picture band = in;
  // Twice: what interpolates between pixels is off where structures are narrow.
  Smooth(band);
  Smooth(band);
  Picture slow = band;
  Average(slow, reach);
  Picture out{
      .rows = in.rows - 2 * ends.rows, .columns = in.columns - 2 * ends.columns, .pixels = {}};
  out.pixels.resize(static_cast<size_t>(out.rows * out.columns));
  for (int64_t r = 0; r < out.rows; ++r) {
    for (int64_t c = 0; c < out.columns; ++c)
      out.row(r)[c] =
          band.row(r + ends.rows)[c + ends.columns] - slow.row(r + ends.rows)[c + ends.columns];
  }
  return out;
}

struct Sums {
  double count = 0, a = 0, b = 0, aa = 0, bb = 0, ab = 0;
};

void AddRow(const float* a, const float* b, int64_t count, Sums* sums) {
  constexpr int64_t kLanes = 8;
  float of_a[kLanes] = {}, of_b[kLanes] = {}, of_aa[kLanes] = {}, of_bb[kLanes] = {},
        of_ab[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const float x = a[i + l], y = b[i + l];
      of_a[l] += x;
      of_b[l] += y;
      of_aa[l] += x * x;
      of_bb[l] += y * y;
      of_ab[l] += x * y;
    }
  }
  for (int64_t l = 0; i < count; ++i, ++l) {
    of_a[l] += a[i];
    of_b[l] += b[i];
    of_aa[l] += a[i] * a[i];
    of_bb[l] += b[i] * b[i];
    of_ab[l] += a[i] * b[i];
  }
  for (int64_t l = 0; l < kLanes; ++l) {
    sums->a += static_cast<double>(of_a[l]);
    sums->b += static_cast<double>(of_b[l]);
    sums->aa += static_cast<double>(of_aa[l]);
    sums->bb += static_cast<double>(of_bb[l]);
    sums->ab += static_cast<double>(of_ab[l]);
  }
  sums->count += static_cast<double>(count);
}

struct Lag {
  int64_t row = 0, column = 0;
  bool operator<(const Lag& other) const {
    return std::pair(row, column) < std::pair(other.row, other.column);
  }
};

/// Pairs of pictures at one resolution.
class Level {
 public:
  Level(const std::vector<Picture>& first, const std::vector<Picture>& second,
        const LagRange& range, int64_t scale)
      : least_{.row = FloorOf(range.row - range.most_rows, scale),
               .column = FloorOf(range.column - range.most_columns, scale)},
        most_{.row = -FloorOf(-range.row - range.most_rows, scale),
              .column = -FloorOf(-range.column - range.most_columns, scale)} {
    const Picture &a = first.front(), &b = second.front();
    const Lag middle = {.row = FloorOf(range.row, scale), .column = FloorOf(range.column, scale)};
    shared_rows_ = Shared(a.rows, b.rows, middle.row);
    shared_columns_ = Shared(a.columns, b.columns, middle.column);
    const Reach reach = {.rows = ReachFor(shared_rows_), .columns = ReachFor(shared_columns_)};
    const Reach ends = {.rows = EndsOf(reach.rows, range.most_rows, shared_rows_),
                        .columns = EndsOf(reach.columns, range.most_columns, shared_columns_)};
    for (const Picture& picture : first) first_.push_back(BandOf(picture, reach, ends));
    for (const Picture& picture : second) second_.push_back(BandOf(picture, reach, ends));
    least_pixels_ = std::max<double>(kFewPixels, kLeastShare * PixelsAt(middle));
  }

  const Lag& least() const { return least_; }
  const Lag& most() const { return most_; }
  bool Inside(const Lag& lag) const {
    return lag.row >= least_.row && lag.row <= most_.row && lag.column >= least_.column &&
           lag.column <= most_.column;
  }
  /// In the middle of the range.
  int64_t shared_rows() const { return shared_rows_; }
  int64_t shared_columns() const { return shared_columns_; }
  /// Pixels of the first picture that the second one shows, too.
  double PixelsAt(const Lag& lag) const {
    return static_cast<double>(SharedRows(lag)) * static_cast<double>(SharedColumns(lag));
  }
  /// The standard deviation of the correlation of noise alone, as Fisher's transform of it. Fields
  /// leave the same pattern in all projections of a tile, so these do not count in full.
  double NoiseAt(const Lag& lag) const {
    const double together = (first_.front().rows > 1 ? kSmoothedPixels : 1) * kSmoothedPixels,
                 pixels = PixelsAt(lag) * std::sqrt(static_cast<double>(first_.size()));
    return 1 / std::sqrt(std::max(1.0, pixels / together - 3));
  }
  /// Pixels that the whole range takes.
  double Work() const {
    return static_cast<double>(most_.row - least_.row + 1) *
           static_cast<double>(most_.column - least_.column + 1) *
           static_cast<double>(first_.front().pixels.size()) * static_cast<double>(first_.size());
  }
  const std::vector<Picture>& first() const { return first_; }
  const std::vector<Picture>& second() const { return second_; }
  double least_pixels() const { return least_pixels_; }
  /// −2 where the pictures share too little.
  double At(const Lag& lag) {
    const auto known = known_.find(lag);
    if (known != known_.end()) return known->second;
    return known_[lag] = Correlate(lag);
  }

 private:
  static int64_t FloorOf(int64_t value, int64_t scale) {
    return value >= 0 ? value / scale : -((-value + scale - 1) / scale);
  }
  static int64_t Shared(int64_t of_first, int64_t of_second, int64_t lag) {
    return std::max<int64_t>(0, std::min(of_first, of_second + lag) - std::max<int64_t>(0, lag));
  }
  int64_t SharedRows(const Lag& lag) const {
    return Shared(first_.front().rows, second_.front().rows, lag.row);
  }
  int64_t SharedColumns(const Lag& lag) const {
    return Shared(first_.front().columns, second_.front().columns, lag.column);
  }
  static int64_t ReachFor(int64_t shared) {
    return std::clamp<int64_t>(shared / kPartOfHighPass, 3, kHighPass);
  }
  /// Along an axis whose lag is known both pictures end alike.
  static int64_t EndsOf(int64_t reach, int64_t most_lags, int64_t shared) {
    return most_lags == 0 ? 0 : std::min(reach + kSmooth, shared / 4);
  }
  double Correlate(const Lag& lag) const {
    if (PixelsAt(lag) < least_pixels_) return -2;
    double together = 0, of_first = 0, of_second = 0;
    for (size_t i = 0; i < first_.size(); ++i) {
      const Picture &a = first_[i], &b = second_[i];
      const int64_t begin = std::max<int64_t>(0, lag.column),
                    count = std::min(a.columns, b.columns + lag.column) - begin;
      Sums sums;
      for (int64_t r = std::max<int64_t>(0, lag.row); r < std::min(a.rows, b.rows + lag.row); ++r)
        AddRow(a.row(r) + begin, b.row(r - lag.row) + begin - lag.column, count, &sums);
      together += sums.ab - sums.a * sums.b / sums.count;
      of_first += sums.aa - sums.a * sums.a / sums.count;
      of_second += sums.bb - sums.b * sums.b / sums.count;
    }
    const double scale = std::sqrt(of_first * of_second);
    return scale > 0 && std::isfinite(scale) ? together / scale : 0;
  }

  const Lag least_, most_;
  double least_pixels_ = 0;
  int64_t shared_rows_ = 0, shared_columns_ = 0;
  std::vector<Picture> first_, second_;
  std::map<Lag, double> known_;
};

/// Goes up from `lag` within the range, along the axes that are given, and diagonally.
Lag Climb(Level& level, Lag lag, bool rows, bool columns) {
  constexpr int kMostSteps = 64, kReach = 2;
  for (int step = 0; step < kMostSteps; ++step) {
    Lag best = lag;
    for (int64_t r = rows ? -kReach : 0; r <= (rows ? kReach : 0); ++r) {
      for (int64_t c = columns ? -kReach : 0; c <= (columns ? kReach : 0); ++c) {
        const Lag next = {.row = lag.row + r, .column = lag.column + c};
        if (level.Inside(next) && level.At(next) > level.At(best)) best = next;
      }
    }
    if (!(best < lag) && !(lag < best)) break;
    lag = best;
  }
  return lag;
}

/// The largest local maxima of the whole range.
std::vector<Lag> MaximaOf(Level& level) {
  std::vector<std::pair<double, Lag>> found;
  for (int64_t r = level.least().row; r <= level.most().row; ++r) {
    for (int64_t c = level.least().column; c <= level.most().column; ++c) {
      const Lag lag = {.row = r, .column = c};
      const double value = level.At(lag);
      bool largest = value > -2;
      for (int64_t dr = -1; dr <= 1 && largest; ++dr) {
        for (int64_t dc = -1; dc <= 1 && largest; ++dc) {
          const Lag next = {.row = r + dr, .column = c + dc};
          largest = !level.Inside(next) || level.At(next) <= value;
        }
      }
      if (largest) found.emplace_back(value, lag);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Lag> maxima;
  for (size_t i = 0; i < std::min(kCandidates, found.size()); ++i)
    maxima.push_back(found[i].second);
  return maxima;
}

/// Where the parabola through three values has its maximum, from the middle one.
double PeakOf(double before, double middle, double after) {
  const double curve = before - 2 * middle + after;
  if (before <= -2 || after <= -2 || !(curve < 0)) return 0;
  return std::clamp(0.5 * (before - after) / curve, -0.5, 0.5);
}

/// A maximum of the finest level, and what tells whether it is one.
class Peak {
 public:
  Peak(Level& level, const Lag& lag)
      : level_(level), lag_(lag), value_(level.At(lag)), noise_(level.NoiseAt(lag)) {}

  double value() const { return value_; }
  /// The correlation from which on it stands out. Noise alone gives a correlation near 1 much more
  /// rarely than its standard deviation tells; so few pixels are enough for a good one.
  double needed() const {
    return std::max(kLeastCorrelation, std::tanh(kDeviationsOfPeak * noise_));
  }
  bool stands_out() const { return value_ >= needed(); }
  /// Whether it falls by enough a few pixels further on, both ways.
  bool Falls(int64_t rows, int64_t columns) const {
    bool any = false;
    for (const int64_t way : {-1, 1}) {
      const double there = level_.At({.row = lag_.row + way * rows * kFarLag,
                                      .column = lag_.column + way * columns * kFarLag});
      if (there <= -2) continue;  // the pictures share too little
      any = true;
      if (value_ - there < kLeastFall * value_ ||
          Transformed(value_) - Transformed(there) < kDeviationsOfFall * noise_)
        return false;
    }
    return any;
  }

 private:
  static double Transformed(double correlation) {
    return std::atanh(std::clamp(correlation, -kNearOne, kNearOne));
  }
  Level& level_;
  const Lag lag_;
  const double value_, noise_;
};

}  // namespace

void Smooth(Picture& picture) {
  std::vector<float> copy;
  ForLines(picture, {}, [&](const Line& line, int64_t) {
    copy.clear();
    for (int64_t i = 0; i < line.count; ++i) copy.push_back(line.at(i));
    const auto value = [&](int64_t i) {
      return copy[static_cast<size_t>(std::clamp<int64_t>(i, 0, line.count - 1))];
    };
    for (int64_t i = 0; i < line.count; ++i)
      line.at(i) =
          (6 * value(i) + 4 * (value(i - 1) + value(i + 1)) + value(i - 2) + value(i + 2)) / 16;
  });
}

FoundLag FindLag(std::vector<Picture> first, std::vector<Picture> second, const LagRange& range) {
  FoundLag found = {.row = static_cast<double>(range.row),
                    .column = static_cast<double>(range.column)};
  if (first.empty() || first.size() != second.size()) return found;
  // From a coarse level on, because the whole range of a fine one takes long, and noise has many
  // maxima there.
  std::vector<Level> levels;
  for (int64_t scale = 1;; scale *= 2) {
    levels.emplace_back(first, second, range, scale);
    const Picture &a = first.front(), &b = second.front();
    if (std::max(range.most_rows, range.most_columns) / scale <= kCoarseLags ||
        std::min({a.rows, b.rows, a.columns, b.columns}) < 4)
      break;
    const Level& level = levels.back();
    const bool too_small = (range.most_rows > 0 && level.shared_rows() < 2 * kLeastCoarse) ||
                           (range.most_columns > 0 && level.shared_columns() < 2 * kLeastCoarse);
    if (too_small && level.Work() <= kMostWork) break;
    for (Picture& picture : first) picture = Halved(picture);
    for (Picture& picture : second) picture = Halved(picture);
  }
  std::optional<Lag> best;
  Level& finest = levels.front();
  for (Lag lag : MaximaOf(levels.back())) {
    for (size_t level = levels.size() - 1; level-- > 0;) {
      lag = {.row = std::clamp(2 * lag.row, levels[level].least().row, levels[level].most().row),
             .column = std::clamp(2 * lag.column, levels[level].least().column,
                                  levels[level].most().column)};
      lag = Climb(levels[level], lag, true, true);
    }
    if (!best.has_value() || finest.At(lag) > finest.At(*best)) best = lag;
  }
  if (!best.has_value()) return found;

  const auto inner = [](int64_t lag, int64_t middle, int64_t most) {
    return most > 0 && std::abs(lag - middle) < most;
  };
  Peak peak(finest, *best);
  found.correlation = peak.value();
  found.needed = peak.needed();
  if (!peak.stands_out()) {
    if (peak.value() >= kHighCorrelation) found.doubt = LagDoubt::kTooSmall;
    return found;
  }
  found.row_known = inner(best->row, range.row, range.most_rows) && peak.Falls(1, 0);
  found.column_known = inner(best->column, range.column, range.most_columns) && peak.Falls(0, 1);
  // Of an edge that is oblique, the place along it is not known, though both axes seem so.
  if (found.row_known && found.column_known && (!peak.Falls(1, 1) || !peak.Falls(1, -1)))
    found.row_known = false;
  const auto at_end = [](int64_t lag, int64_t middle, int64_t most) {
    return most > 0 && std::abs(lag - middle) >= most;
  };
  found.doubt = at_end(best->row, range.row, range.most_rows) ||
                        at_end(best->column, range.column, range.most_columns)
                    ? LagDoubt::kAtEnd
                    : LagDoubt::kManyFit;
  if (!found.row_known && !found.column_known) return found;
  // An axis that is not known stays in the middle, and the other one fits to that.
  if (!found.row_known && best->row != range.row) {
    best = Climb(finest, {.row = range.row, .column = best->column}, false, true);
  } else if (!found.column_known && best->column != range.column) {
    best = Climb(finest, {.row = best->row, .column = range.column}, true, false);
  }
  const Peak last(finest, *best);
  if (!last.stands_out()) {
    found.row_known = found.column_known = false;
    return found;
  }
  found.correlation = last.value();
  found.needed = last.needed();
  found.doubt = LagDoubt::kNone;
  const auto neighbour = [&](int64_t rows, int64_t columns) {
    return finest.At({.row = best->row + rows, .column = best->column + columns});
  };
  TileShift shift = {.row = static_cast<double>(best->row),
                     .column = static_cast<double>(best->column)};
  if (found.row_known) shift.row += PeakOf(neighbour(-1, 0), finest.At(*best), neighbour(1, 0));
  if (found.column_known)
    shift.column += PeakOf(neighbour(0, -1), finest.At(*best), neighbour(0, 1));
  shift =
      RefinedShift(finest.first(), finest.second(), shift,
                   {.rows = found.row_known, .columns = found.column_known}, finest.least_pixels())
          .value_or(shift);
  if (found.row_known) found.row = shift.row;
  if (found.column_known) found.column = shift.column;
  return found;
}

}  // namespace octavo::tomography
