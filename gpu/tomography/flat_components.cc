#include "gpu/tomography/flat_components.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

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

/// Eigenvalues in falling order, and the eigenvectors as rows, of a symmetric matrix: Jacobi's
/// rotations (Golub, Van Loan, Matrix Computations, section 8.5).
struct Spectrum {
  std::vector<double> values, vectors;
};
Spectrum EigenOf(std::vector<double> a, int64_t n) {
  const auto at = [n](std::vector<double>& m, int64_t r, int64_t c) -> double& {
    return m[static_cast<size_t>(r * n + c)];
  };
  std::vector<double> v(a.size(), 0.0);
  double whole = 0;
  for (int64_t i = 0; i < n; ++i) at(v, i, i) = 1;
  for (const double x : a) whole += x * x;
  constexpr int kMostSweeps = 60;
  constexpr double kZero = 1e-26;  // of the sum of squares
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double off = 0;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) off += at(a, p, q) * at(a, p, q);
    }
    if (!(off > kZero * whole)) break;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        const double apq = at(a, p, q);
        if (apq == 0) continue;
        const double theta = (at(a, q, q) - at(a, p, p)) / (2 * apq);
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        const auto turn = [&](double& x, double& y) {
          const double before = x;
          x = c * before - s * y;
          y = s * before + c * y;
        };
        for (int64_t k = 0; k < n; ++k) turn(at(a, k, p), at(a, k, q));
        for (int64_t k = 0; k < n; ++k) turn(at(a, p, k), at(a, q, k));
        for (int64_t k = 0; k < n; ++k) turn(at(v, p, k), at(v, q, k));
      }
    }
  }
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return at(a, i, i) > at(a, j, j); });
  Spectrum out;
  for (const int64_t i : order) {
    out.values.push_back(at(a, i, i));
    out.vectors.insert(out.vectors.end(), v.begin() + i * n, v.begin() + (i + 1) * n);
  }
  return out;
}

/// What the largest eigenvalue of the products of `fields` independent noise fields, less their
/// mean, is below but for 2 standard deviations. `variances`, `squares`: sums over the pixels of
/// the noise's variance and its square.
double NoiseBound(int64_t fields, double variances, double squares) {
  const double m = static_cast<double>(fields);
  constexpr double kMean = -1.2065, kDeviation = 1.2680;  // of Tracy and Widom's law, order 1
  return variances +
         std::sqrt(squares) * (2 * std::sqrt(m) + (kMean + 2 * kDeviation) * std::pow(m, -1.0 / 6));
}

class DeviceFinder final : public FlatComponentFinder {
 public:
  DeviceFinder(const FlatComponentsConfig& config, Device& device,
               const TomographyFamilies& families)
      : config_(config),
        device_(device),
        ops_(families.prepare),
        bin_rows_(config.group_rows >= kBin ? kBin : 1),
        bin_columns_(config.columns >= 2 * kBin ? kBin : 1),
        group_rows_(config.group_rows / bin_rows_),
        rows_(config.groups * group_rows_),
        columns_(config.columns / bin_columns_) {}

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
    OCTAVO_ASSIGN_OR_RETURN(
        host_,
        device_.AllocatePinned(std::max({c.frames_at_once * pixels() * kFloat,
                                         (2 + math::kMostFlatComponents) * pixels() * kFloat,
                                         c.frames_at_once * math::kMostFlatComponents * 8})));
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
                           .bin_rows = bin_rows_,
                           .bin_columns = bin_columns_,
                           .angles = count,
                           .rows = group_rows_,
                           .columns = columns_,
                           .out_angle_stride = pixels(),
                           .out_row_stride = columns_,
                           .cutoff = std::numeric_limits<float>::infinity()};
    OCTAVO_RETURN_IF_ERROR(
        ops_.Correct(stream, mean, data,
                     binned_.span<float>().From(first * pixels() + group * group_rows_ * columns_),
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

  absl::StatusOr<FlatPrincipals> Learn(StreamRef stream) override {
    if (std::ssize(flats_) != config_.flats * pixels())
      return absl::FailedPreconditionError("not all flat fields were added");
    const auto all = static_cast<size_t>(pixels());
    std::vector<double> open(all, 0.0);
    for (size_t i = 0; i < flats_.size(); ++i)
      open[i % all] += static_cast<double>(flats_[i]) / static_cast<double>(config_.flats);
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
    for (int64_t f = 0; f < config_.flats; ++f) {
      for (const size_t i : lit) fields.push_back(flats_[static_cast<size_t>(f) * all + i]);
    }
    FlatPrincipals found = FindFlatPrincipals(config_.flats, fields, config_.components);
    components_ = found.components;
    sample_ = {.rows = rows_, .columns = columns_, .group_rows = group_rows_};
    auto* const on_host = host_.as<float>();
    std::fill_n(on_host, (2 + components_) * pixels(), 0.0f);
    for (size_t i = 0; i < all; ++i) {
      on_host[i] = static_cast<float>(open[i]);
      on_host[all + i] = static_cast<float>(dark_[i]);
    }
    for (const size_t i : lit) sample_.mean += open[i] / static_cast<double>(lit.size());
    for (int64_t k = 0; k < components_; ++k) {
      for (const size_t i : lit) {
        double part = 0;
        for (int64_t f = 0; f < config_.flats; ++f) {
          part += found.mixture[static_cast<size_t>(f * components_ + k)] *
                  static_cast<double>(flats_[static_cast<size_t>(f) * all + i]);
        }
        on_host[static_cast<size_t>(2 + k) * all + i] = static_cast<float>(part);
        sample_.means[k] += part / static_cast<double>(lit.size());
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
  int64_t pixels() const { return rows_ * columns_; }

  const FlatComponentsConfig config_;
  Device& device_;
  PrepareOps& ops_;
  const int64_t bin_rows_, bin_columns_, group_rows_, rows_, columns_;
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

FlatPrincipals FindFlatPrincipals(int64_t flats, const std::vector<float>& fields,
                                  int64_t components) {
  const int64_t pixels = std::ssize(fields) / flats;
  const auto number = static_cast<size_t>(flats), n = static_cast<size_t>(pixels);
  FlatPrincipals found;
  // The sums of products of two fields, less the mean of all; a part of the pixels at a time, so
  // that it stays in the cache.
  constexpr size_t kPart = 1024;
  std::vector<double> products(number * number, 0.0), part(number * kPart), variance(n, 0.0);
  double scale = 0;  // of the squares that are lost to rounding
  for (size_t first = 0; first < n; first += kPart) {
    const size_t count = std::min(kPart, n - first);
    for (size_t i = 0; i < count; ++i) {
      double mean = 0;
      for (size_t f = 0; f < number; ++f) mean += static_cast<double>(fields[f * n + first + i]);
      mean /= static_cast<double>(flats);
      scale += mean * mean;
      for (size_t f = 0; f < number; ++f) {
        const double off = static_cast<double>(fields[f * n + first + i]) - mean;
        part[f * kPart + i] = off;
        variance[first + i] += off * off;  // for the time being their sum
      }
    }
    for (size_t f = 0; f < number; ++f) {
      for (size_t g = f; g < number; ++g) {
        double sum = 0;
        for (size_t i = 0; i < count; ++i) sum += part[f * kPart + i] * part[g * kPart + i];
        products[f * number + g] += sum;
        if (g != f) products[g * number + f] += sum;
      }
    }
  }
  const double whole = std::accumulate(variance.begin(), variance.end(), 0.0);
  if (!(whole > 0) || !std::isfinite(whole)) return found;
  const Spectrum spectrum = EigenOf(products, flats);
  const int64_t most =
      std::min(flats - 1, components == 0 ? int64_t{math::kMostFlatComponents} : components);
  for (int64_t k = 0; k < most; ++k) {
    const double value = spectrum.values[static_cast<size_t>(k)];
    const double* const vector = spectrum.vectors.data() + k * flats;
    constexpr double kRounding = 1e-14;
    if (!(value > kRounding * (scale + whole))) break;
    if (components == 0) {
      // The variance that is left at each pixel, of one noise field.
      const double fields_left = static_cast<double>(flats - 1 - k);
      double variances = 0, squares = 0;
      for (const double sum : variance) {
        const double one = std::max(sum, 0.0) / fields_left;
        variances += one;
        squares += one * one;
      }
      if (!(value > NoiseBound(flats - 1 - k, variances, squares))) break;
      for (size_t i = 0; i < n; ++i) {
        double score = 0;
        for (size_t f = 0; f < number; ++f)
          score += vector[f] * static_cast<double>(fields[f * n + i]);
        variance[i] -= score * score;
      }
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

absl::StatusOr<std::unique_ptr<FlatComponentFinder>> FlatComponentFinder::Create(
    const FlatComponentsConfig& config, Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckComponents(config));
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  auto finder = std::make_unique<DeviceFinder>(config, device, families);
  OCTAVO_RETURN_IF_ERROR(finder->Init(false));
  return finder;
}

}  // namespace octavo::inline gpu
