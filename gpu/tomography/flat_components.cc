#include "gpu/tomography/flat_components.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tbb/parallel_for.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/tomography/families.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Flat fields have little detail of single pixels that is not noise, so pairs of pixels tell the
// weights better (the authors' program looks at half the resolution as well).
constexpr int64_t kBin = 2;
constexpr double kLit = 0.05;  // of the mean open beam: darker pixels tell nothing

/// The largest eigenvalues in falling order, and their eigenvectors as rows, of a symmetric matrix.
struct Spectrum {
  std::vector<double> values, vectors;
};

/// Finds the `most` largest eigenvalues: Householder's reflections make the matrix tridiagonal, and
/// QL steps with implicit shifts make that diagonal (Golub, Van Loan, Matrix Computations, sections
/// 8.3.1 and 8.3.3). Matrices are held by rows.
class EigenFinder {
 public:
  EigenFinder(std::vector<double> matrix, int64_t n, const CancelCheck& goes_on)
      : a_(std::move(matrix)),
        n_(static_cast<size_t>(n)),
        goes_on_(goes_on),
        diagonal_(n_, 0.0),
        beside_(n_, 0.0),
        turned_(n_ * n_, 0.0) {}

  /// Cancelled when asked to give up; Internal if the steps do not converge.
  absl::StatusOr<Spectrum> Find(int64_t most) {
    OCTAVO_RETURN_IF_ERROR(MakeTridiagonal());
    OCTAVO_RETURN_IF_ERROR(MakeDiagonal());
    std::vector<size_t> order(n_);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t i, size_t j) { return diagonal_[i] > diagonal_[j]; });
    order.resize(static_cast<size_t>(most));
    Spectrum out;
    for (const size_t i : order) {
      out.values.push_back(diagonal_[i]);
      double* const vector = turned_.data() + i * n_;
      for (size_t k = n_; k-- > 0;) Reflect(k, vector);
      out.vectors.insert(out.vectors.end(), vector, vector + n_);
    }
    return out;
  }

 private:
  absl::Status MakeTridiagonal() {
    std::vector<double> w(n_);
    for (size_t k = 0; k + 2 < n_; ++k) {
      if (goes_on_ && !goes_on_()) return absl::CancelledError("given up when asked");
      // Row k keeps the reflection, a unit vector v over the entries from k + 1 on: I - 2 v v^T.
      double* const v = a_.data() + k * n_;
      double squares = 0;
      for (size_t i = k + 1; i < n_; ++i) squares += v[i] * v[i];
      const double norm = std::sqrt(squares);
      beside_[k] = v[k + 1] > 0 ? -norm : norm;
      v[k + 1] -= beside_[k];
      double length = 0;
      for (size_t i = k + 1; i < n_; ++i) length += v[i] * v[i];
      if (!(length > 0)) continue;  // there is nothing to reflect, and v is 0
      length = std::sqrt(length);
      for (size_t i = k + 1; i < n_; ++i) v[i] /= length;
      double both = 0;
      for (size_t i = k + 1; i < n_; ++i) {
        const double* const row = a_.data() + i * n_;
        w[i] = 2 * std::inner_product(row + k + 1, row + n_, v + k + 1, 0.0);
        both += w[i] * v[i];
      }
      for (size_t i = k + 1; i < n_; ++i) w[i] -= both * v[i];
      for (size_t i = k + 1; i < n_; ++i) {
        double* const row = a_.data() + i * n_;
        for (size_t j = k + 1; j < n_; ++j) row[j] -= v[i] * w[j] + w[i] * v[j];
      }
    }
    for (size_t i = 0; i < n_; ++i) {
      diagonal_[i] = a_[i * n_ + i];
      turned_[i * n_ + i] = 1;
    }
    if (n_ > 1) beside_[n_ - 2] = a_[(n_ - 2) * n_ + n_ - 1];
    return absl::OkStatus();
  }
  void Reflect(size_t k, double* vector) const {
    if (k + 2 >= n_) return;
    const double* const v = a_.data() + k * n_;
    const double part = 2 * std::inner_product(v + k + 1, v + n_, vector + k + 1, 0.0);
    for (size_t i = k + 1; i < n_; ++i) vector[i] -= part * v[i];
  }

  absl::Status MakeDiagonal() {
    constexpr int kMostSteps = 60;  // for one eigenvalue; two or three are usual
    constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
    // One eigenvalue is 0, as the mean was taken off, so what is small is so beside the largest.
    double small = 0;
    for (size_t i = 0; i < n_; ++i)
      small = std::max(small, kEpsilon * (std::abs(diagonal_[i]) + std::abs(beside_[i])));
    for (size_t l = 0; l < n_; ++l) {
      for (int step = 0;; ++step) {
        if (goes_on_ && !goes_on_()) return absl::CancelledError("given up when asked");
        size_t m = l;
        while (m + 1 < n_ && std::abs(beside_[m]) > small) ++m;
        if (m == l) break;
        if (step == kMostSteps)
          return absl::InternalError("the eigenvalues of the flat fields do not converge");
        Step(l, m);
      }
    }
    return absl::OkStatus();
  }
  // One QL step on the rows from l to m.
  void Step(size_t l, size_t m) {
    double g = (diagonal_[l + 1] - diagonal_[l]) / (2 * beside_[l]);
    const double root = std::hypot(g, 1.0);
    g = diagonal_[m] - diagonal_[l] + beside_[l] / (g + std::copysign(root, g));
    double s = 1, c = 1, p = 0;
    for (size_t i = m; i-- > l;) {
      const double f = s * beside_[i], b = c * beside_[i];
      const double r = std::hypot(f, g);
      beside_[i + 1] = r;
      if (r == 0) {  // it has fallen apart before l
        diagonal_[i + 1] -= p;
        beside_[m] = 0;
        return;
      }
      s = f / r;
      c = g / r;
      g = diagonal_[i + 1] - p;
      const double t = (diagonal_[i] - g) * s + 2 * c * b;
      p = s * t;
      diagonal_[i + 1] = g + p;
      g = c * t - b;
      double* const low = turned_.data() + i * n_;
      double* const high = low + n_;
      for (size_t k = 0; k < n_; ++k) {
        const double before = high[k];
        high[k] = s * low[k] + c * before;
        low[k] = c * low[k] - s * before;
      }
    }
    diagonal_[l] -= p;
    beside_[l] = g;
    beside_[m] = 0;
  }

  std::vector<double> a_;
  const size_t n_;
  const CancelCheck& goes_on_;
  std::vector<double> diagonal_, beside_, turned_;  // beside_[i]: between rows i and i + 1
};

/// The sums of products of two of `count` fields over some pixels, in square tiles that stay in
/// registers; the tiles on and above the diagonal, several at a time.
class Products {
 public:
  static constexpr size_t kTile = 4, kPixels = 512;
  explicit Products(size_t count)
      : count_(count),
        tiles_((count + kTile - 1) / kTile),
        fields_(tiles_ * kPixels * kTile, 0.0),
        sums_(count * count, 0.0) {}

  /// Of pixel i < kPixels of the next ones.
  double& At(size_t field, size_t i) {
    return fields_[(field / kTile * kPixels + i) * kTile + field % kTile];
  }
  /// Adds the products of the first `pixels` of them.
  void Add(size_t pixels) {
    tbb::parallel_for(size_t{0}, tiles_, [&](size_t row) {
      for (size_t column = row; column < tiles_; ++column) AddTile(row, column, pixels);
    });
  }
  std::vector<double> Whole() && {
    for (size_t f = 0; f < count_; ++f) {
      for (size_t g = 0; g < f; ++g) sums_[f * count_ + g] = sums_[g * count_ + f];
    }
    return std::move(sums_);
  }

 private:
  void AddTile(size_t row, size_t column, size_t pixels) {
    const double* x = fields_.data() + row * kPixels * kTile;
    const double* y = fields_.data() + column * kPixels * kTile;
    double tile[kTile][kTile] = {};
    for (size_t i = 0; i < pixels; ++i, x += kTile, y += kTile) {
      for (size_t f = 0; f < kTile; ++f) {
        for (size_t g = 0; g < kTile; ++g) tile[f][g] += x[f] * y[g];
      }
    }
    for (size_t f = row * kTile; f < std::min((row + 1) * kTile, count_); ++f) {
      for (size_t g = column * kTile; g < std::min((column + 1) * kTile, count_); ++g)
        sums_[f * count_ + g] += tile[f % kTile][g % kTile];
    }
  }

  const size_t count_, tiles_;
  std::vector<double> fields_;  // [tile, pixel, field of the tile]
  std::vector<double> sums_;
};

/// What the largest eigenvalue of the products of `fields` independent noise fields, less their
/// mean, stays below in 99 of 100 cases. `variances`: of the noise at each pixel.
///
/// The law of Tracy and Widom of order 1 about the edge of the spectrum (N. El Karoui, Ann. Probab.
/// 35 (2007) 663, theorem 1): where c solves Σ (v c / (1 - v c))² = fields, the middle is
/// fields / c + Σ v / (1 - v c) and the scale (fields + Σ (v c / (1 - v c))³)^(1/3) / c. With the
/// same variance 1 at n pixels the middle is n + fields + 2 √(n fields) (I. M. Johnstone, Ann.
/// Statist. 29 (2001) 295).
double NoiseBound(int64_t fields, const std::vector<double>& variances) {
  const double m = static_cast<double>(fields);
  const double largest = *std::max_element(variances.begin(), variances.end());
  if (!(largest > 0)) return 0;
  const auto powers = [&](double c, double* squares, double* cubes, double* sum) {
    *squares = *cubes = *sum = 0;
    for (const double v : variances) {
      const double left = 1 - v * c, ratio = v * c / left;
      *squares += ratio * ratio;
      *cubes += ratio * ratio * ratio;
      *sum += v / left;
    }
  };
  double low = 0, high = 1 / largest, squares = 0, cubes = 0, sum = 0;
  constexpr int kHalvings = 40;
  for (int i = 0; i < kHalvings; ++i) {
    const double c = (low + high) / 2;
    powers(c, &squares, &cubes, &sum);
    (squares < m ? low : high) = c;
  }
  powers(low, &squares, &cubes, &sum);
  constexpr double kTracyWidom = 2.0234;  // 99 % of the law of order 1 lie below
  return m / low + sum + kTracyWidom * std::cbrt(m + cubes) / low;
}

/// The bins of pixels that the components are found in.
struct Bins {
  explicit Bins(const FlatComponentsConfig& config)
      : bin_rows(config.group_rows >= kBin ? kBin : 1),
        bin_columns(config.columns >= 2 * kBin ? kBin : 1),
        group_rows(config.group_rows / bin_rows),
        rows(config.groups * group_rows),
        columns(config.columns / bin_columns) {}
  int64_t count() const { return rows * columns; }

  int64_t bin_rows, bin_columns, group_rows, rows, columns;
};

/// Page-locked memory for what comes from the device and goes to it.
int64_t PinnedBytes(const FlatComponentsConfig& config) {
  const int64_t pixels = Bins(config).count();
  return std::max({config.frames_at_once * pixels * kFloat,
                   (2 + math::kMostFlatComponents) * pixels * kFloat,
                   config.frames_at_once * math::kMostFlatComponents * 8});
}

class DeviceFinder final : public FlatComponentFinder {
 public:
  DeviceFinder(const FlatComponentsConfig& config, Device& device,
               const TomographyFamilies& families)
      : config_(config), device_(device), ops_(families.prepare), bins_(config) {}

  absl::Status Init(bool only_count) {
    const FlatComponentsConfig& c = config_;
    const int64_t raw = c.frames_at_once * c.group_rows * c.columns;
    const auto take = [&](int64_t bytes, DeviceBuffer& buffer) -> absl::Status {
      bytes = std::max<int64_t>(bytes, 256);
      bytes_ += bytes;
      if (only_count) return absl::OkStatus();
      OCTAVO_ASSIGN_OR_RETURN(buffer, device_.Allocate(bytes));
      return absl::OkStatus();
    };
    OCTAVO_RETURN_IF_ERROR(take(raw * SizeOf(c.dtype), raw_));
    if (c.outliers.window > 0) OCTAVO_RETURN_IF_ERROR(take(raw * kFloat, clean_));
    OCTAVO_RETURN_IF_ERROR(take(c.frames_at_once * pixels() * kFloat, binned_));
    OCTAVO_RETURN_IF_ERROR(take((2 + math::kMostFlatComponents) * pixels() * kFloat, fields_));
    OCTAVO_RETURN_IF_ERROR(take(c.frames_at_once * math::kMostFlatComponents * 8, weights_));
    OCTAVO_RETURN_IF_ERROR(take(math::kPrepareFlags * 8, counts_));
    if (only_count) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(host_, device_.AllocatePinned(PinnedBytes(c)));
    flats_.reserve(static_cast<size_t>(c.flats * pixels()));
    dark_.assign(static_cast<size_t>(pixels()), 0.0);
    return absl::OkStatus();
  }
  int64_t bytes() const { return bytes_; }

  absl::Status Add(StreamRef stream, const void* frames, int64_t first, int64_t count,
                   int64_t group) override {
    const FlatComponentsConfig& c = config_;
    FrameSpec in{.dtype = c.dtype,
                 .frames = count,
                 .rows = c.group_rows,
                 .columns = c.columns,
                 .frame_stride = c.group_rows * c.columns,
                 .row_stride = c.columns};
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(
        stream, raw_.data(), frames, count * c.group_rows * c.columns * SizeOf(c.dtype)));
    const void* data = raw_.data();
    if (c.outliers.window > 0) {
      const OutlierSpec outliers{.in = in,
                                 .window = c.outliers.window,
                                 .difference = static_cast<float>(c.outliers.difference),
                                 .dark_too = c.outliers.dark_too};
      OCTAVO_RETURN_IF_ERROR(
          ops_.Outliers(stream, outliers, data, clean_.span<float>(), counts_.span<int64_t>()));
      data = clean_.data();
      in.dtype = DType::kF32;
    }
    // Without fields this is the mean of each bin.
    const CorrectSpec mean{.in = in,
                           .bin_rows = bins_.bin_rows,
                           .bin_columns = bins_.bin_columns,
                           .angles = count,
                           .rows = bins_.group_rows,
                           .columns = bins_.columns,
                           .out_angle_stride = pixels(),
                           .out_row_stride = bins_.columns,
                           .cutoff = std::numeric_limits<float>::infinity()};
    OCTAVO_RETURN_IF_ERROR(ops_.Correct(
        stream, mean, data,
        binned_.span<float>().From(first * pixels() + group * bins_.group_rows * bins_.columns),
        counts_.span<int64_t>()));
    return stream.Synchronize();
  }

  absl::Status TakeFields(StreamRef stream, Kind kind, int64_t count) override {
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(stream, host_.data(), binned_.data(), count * pixels() * kFloat));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    const float* const values = host_.as<float>();
    if (kind == Kind::kFlat) {
      flats_.insert(flats_.end(), values, values + count * pixels());
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < count * pixels(); ++i)
      dark_[static_cast<size_t>(i % pixels())] +=
          static_cast<double>(values[i]) / static_cast<double>(config_.darks);
    return absl::OkStatus();
  }

  absl::StatusOr<FlatPrincipals> Learn(StreamRef stream, const CancelCheck& goes_on) override {
    if (std::ssize(flats_) != config_.flats * pixels())
      return absl::FailedPreconditionError("not all flat fields were added");
    const auto all = static_cast<size_t>(pixels());
    std::vector<double> open(all, 0.0);
    for (size_t f = 0; f < static_cast<size_t>(config_.flats); ++f) {
      if (goes_on && !goes_on()) return absl::CancelledError("given up when asked");
      for (size_t i = 0; i < all; ++i)
        open[i] += static_cast<double>(flats_[f * all + i]) / static_cast<double>(config_.flats);
    }
    double mean = 0;
    for (size_t i = 0; i < all; ++i) {
      open[i] -= dark_[i];
      if (open[i] > 0) mean += open[i] / static_cast<double>(all);
    }
    // What is not lit, or not finite, has no part in the components.
    std::vector<size_t> lit;
    for (size_t i = 0; i < all; ++i) {
      if (std::isfinite(open[i]) && open[i] > kLit * mean) {
        lit.push_back(i);
      } else {
        open[i] = 0;
      }
    }
    std::vector<float> fields;
    fields.reserve(lit.size() * static_cast<size_t>(config_.flats));
    for (int64_t f = 0; f < config_.flats; ++f) {
      if (goes_on && !goes_on()) return absl::CancelledError("given up when asked");
      for (const size_t i : lit) fields.push_back(flats_[static_cast<size_t>(f) * all + i]);
    }
    OCTAVO_ASSIGN_OR_RETURN(FlatPrincipals found,
                            FindFlatPrincipals(config_.flats, fields, config_.components, goes_on));
    components_ = found.components;
    sample_ = {.rows = bins_.rows, .columns = bins_.columns, .group_rows = bins_.group_rows};
    auto* const on_host = host_.as<float>();
    std::fill_n(on_host, (2 + components_) * pixels(), 0.0f);
    for (size_t i = 0; i < all; ++i) {
      on_host[i] = static_cast<float>(open[i]);
      on_host[all + i] = static_cast<float>(dark_[i]);
    }
    for (const size_t i : lit) sample_.mean += open[i] / static_cast<double>(lit.size());
    for (int64_t k = 0; k < components_; ++k) {
      std::vector<double> part(lit.size(), 0.0);
      for (int64_t f = 0; f < config_.flats; ++f) {
        if (goes_on && !goes_on()) return absl::CancelledError("given up when asked");
        const double factor = found.mixture[static_cast<size_t>(f * components_ + k)];
        const float* const field = fields.data() + static_cast<size_t>(f) * lit.size();
        for (size_t i = 0; i < lit.size(); ++i) part[i] += factor * static_cast<double>(field[i]);
      }
      for (size_t i = 0; i < lit.size(); ++i) {
        on_host[static_cast<size_t>(2 + k) * all + lit[i]] = static_cast<float>(part[i]);
        sample_.means[k] += part[i] / static_cast<double>(lit.size());
      }
    }
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(stream, fields_.data(), on_host,
                                                (2 + components_) * pixels() * kFloat));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    sample_.open = fields_.as<float>();
    sample_.dark = sample_.open + pixels();
    sample_.parts = sample_.dark + pixels();
    flats_.clear();
    flats_.shrink_to_fit();
    return found;
  }

  absl::StatusOr<std::vector<double>> Weights(StreamRef stream, int64_t count) override {
    if (components_ == 0)
      return absl::FailedPreconditionError("the flat fields have no components");
    OCTAVO_RETURN_IF_ERROR(ops_.FlatWeights(stream, sample_, static_cast<int>(components_), count,
                                            binned_.span<float>(), weights_.span<double>()));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(stream, host_.data(), weights_.data(), count * components_ * 8));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    const auto* const found = host_.as<double>();
    return std::vector<double>(found, found + count * components_);
  }

 private:
  int64_t pixels() const { return bins_.count(); }

  const FlatComponentsConfig config_;
  Device& device_;
  PrepareOps& ops_;
  const Bins bins_;
  int64_t bytes_ = 0, components_ = 0;
  DeviceBuffer raw_, clean_, binned_, fields_, weights_, counts_;
  PinnedBuffer host_;
  std::vector<float> flats_;
  std::vector<double> dark_;
  math::FlatSample sample_;
};

absl::Status CheckComponents(const FlatComponentsConfig& c) {
  const auto between = [](const char* field, int64_t value, int64_t lo, int64_t hi) {
    return value >= lo && value <= hi ? absl::OkStatus() : FieldOutOfRange(field, value, lo, hi);
  };
  if (c.dtype != DType::kU8 && c.dtype != DType::kU16 && c.dtype != DType::kI16 &&
      c.dtype != DType::kF32)
    return FieldNotAllowed("dtype", Info(c.dtype).name, "are u8, u16, i16, f32");
  OCTAVO_RETURN_IF_ERROR(between("flats", c.flats, 2, FlatComponentsConfig::kMostFlats));
  OCTAVO_RETURN_IF_ERROR(between("darks", c.darks, 0, 4096));
  OCTAVO_RETURN_IF_ERROR(between("columns", c.columns, 2, 32768));
  OCTAVO_RETURN_IF_ERROR(between("groups", c.groups, 1, 65535));
  OCTAVO_RETURN_IF_ERROR(between("group_rows", c.group_rows, 1, 65535));
  OCTAVO_RETURN_IF_ERROR(between("frames_at_once", c.frames_at_once, 1, 65535));
  return between("components", c.components, 0,
                 std::min<int64_t>(c.flats - 1, math::kMostFlatComponents));
}

}  // namespace

absl::StatusOr<FlatPrincipals> FindFlatPrincipals(int64_t flats, const std::vector<float>& fields,
                                                  int64_t components, const CancelCheck& goes_on) {
  const int64_t pixels = std::ssize(fields) / flats;
  const auto number = static_cast<size_t>(flats), n = static_cast<size_t>(pixels);
  FlatPrincipals found;
  // The sums of products of two fields, less the mean of all; a part of the pixels at a time, so
  // that it stays in the cache.
  Products products(number);
  std::vector<double> variance(n, 0.0);
  double scale = 0;  // of the squares that are lost to rounding
  for (size_t first = 0; first < n; first += Products::kPixels) {
    if (goes_on && !goes_on()) return absl::CancelledError("given up when asked");
    const size_t count = std::min(Products::kPixels, n - first);
    std::vector<double> mean(count, 0.0);
    for (size_t f = 0; f < number; ++f) {
      for (size_t i = 0; i < count; ++i) mean[i] += static_cast<double>(fields[f * n + first + i]);
    }
    for (double& m : mean) {
      m /= static_cast<double>(flats);
      scale += m * m;
    }
    for (size_t f = 0; f < number; ++f) {
      for (size_t i = 0; i < count; ++i) {
        const double off = static_cast<double>(fields[f * n + first + i]) - mean[i];
        products.At(f, i) = off;
        variance[first + i] += off * off;  // for the time being their sum
      }
    }
    products.Add(count);
  }
  const double whole = std::accumulate(variance.begin(), variance.end(), 0.0);
  if (!(whole > 0) || !std::isfinite(whole)) return found;
  const int64_t most =
      std::min(flats - 1, components == 0 ? int64_t{math::kMostFlatComponents} : components);
  OCTAVO_ASSIGN_OR_RETURN(const Spectrum spectrum,
                          EigenFinder(std::move(products).Whole(), flats, goes_on).Find(most));
  for (int64_t k = 0; k < most; ++k) {
    const double value = spectrum.values[static_cast<size_t>(k)];
    const double* const vector = spectrum.vectors.data() + k * flats;
    constexpr double kRounding = 1e-14;
    if (!(value > kRounding * (scale + whole))) break;
    if (components == 0) {
      // The variance that is left at each pixel, of one noise field.
      const double fields_left = static_cast<double>(flats - 1 - k);
      std::vector<double> variances;
      variances.reserve(n);
      for (const double sum : variance) variances.push_back(std::max(sum, 0.0) / fields_left);
      if (!(value > NoiseBound(flats - 1 - k, variances))) break;
      std::vector<double> score(n, 0.0);
      for (size_t f = 0; f < number; ++f) {
        if (goes_on && !goes_on()) return absl::CancelledError("given up when asked");
        for (size_t i = 0; i < n; ++i)
          score[i] += vector[f] * static_cast<double>(fields[f * n + i]);
      }
      for (size_t i = 0; i < n; ++i) variance[i] -= score[i] * score[i];
    }
    ++found.components;
    found.shares.push_back(value / whole);
  }
  const double to_unit = std::sqrt(static_cast<double>(flats - 1));
  for (int64_t f = 0; f < flats; ++f) {
    for (int64_t k = 0; k < found.components; ++k) {
      const double entry = spectrum.vectors[static_cast<size_t>(k * flats + f)];
      found.mixture.push_back(entry / to_unit);
      found.largest = std::max(found.largest, std::abs(entry * to_unit));
    }
  }
  return found;
}

absl::StatusOr<int64_t> FlatComponentFinder::DeviceBytes(const FlatComponentsConfig& config,
                                                         Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckComponents(config));
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  DeviceFinder finder(config, device, families);
  OCTAVO_RETURN_IF_ERROR(finder.Init(true));
  return finder.bytes();
}

absl::StatusOr<int64_t> FlatComponentFinder::HostBytes(const FlatComponentsConfig& config) {
  OCTAVO_RETURN_IF_ERROR(CheckComponents(config));
  // Learn takes the most. It has the fields once more without the pixels that are not lit, and
  // numbers of each pixel: its dark field, its open beam, its place among the lit ones, and three
  // of FindFlatPrincipals. That has two matrices of all pairs of fields, and some pixels of each.
  constexpr int64_t kDouble = sizeof(double), kOfPixel = 6, kMatrices = 2;
  const int64_t pixels = Bins(config).count(), flats = config.flats,
                of_flat = static_cast<int64_t>(Products::kPixels) + 3 + math::kMostFlatComponents;
  return PinnedBytes(config) + 2 * flats * pixels * kFloat + kOfPixel * pixels * kDouble +
         (kMatrices * flats + of_flat) * flats * kDouble;
}

absl::StatusOr<std::unique_ptr<FlatComponentFinder>> FlatComponentFinder::Create(
    const FlatComponentsConfig& config, Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckComponents(config));
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  auto finder = std::make_unique<DeviceFinder>(config, device, families);
  OCTAVO_RETURN_IF_ERROR(finder->Init(false));
  return finder;
}

}  // namespace octavo::inline gpu
