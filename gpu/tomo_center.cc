#include "gpu/tomo_center.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/ops.h"
#include "gpu/tomo_prepare_ops.h"
#include "gpu/tomography.h"

// What is done once per sinogram runs on the calling thread, in double precision; what is done once per trial runs on the device.
namespace octavo {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kFloat = sizeof(float), kWorkBytes = int64_t{512} << 20;
constexpr int64_t kTrialSlices = 8, kBins = 64;
constexpr int64_t kLarge = 4'000'000;  // pixels from which on vo's coarse search takes columns in fours

using Doubles = std::vector<double>;

absl::Status Between(absl::string_view field, int64_t value, int64_t lo, int64_t hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi));
}
absl::Status Within(absl::string_view field, double value, bool ok, absl::string_view allowed) {
  if (std::isfinite(value) && ok) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", allowed));
}

struct Pair {
  int64_t first = 0, second = 0;
  double off = 0;  // from half a turn, rad
};
/// The projections nearest to half a turn apart.
Pair OppositePair(const std::vector<double>& angles) {
  const auto turned = [](double a) { return a - 2 * kPi * std::floor(a / (2 * kPi)); };
  std::vector<std::pair<double, int64_t>> sorted;
  for (size_t i = 0; i < angles.size(); ++i) sorted.emplace_back(turned(angles[i]), static_cast<int64_t>(i));
  std::sort(sorted.begin(), sorted.end());
  Pair best{.off = 4};
  for (size_t i = 0; i < angles.size(); ++i) {
    const double wanted = turned(angles[i] + kPi);
    const auto at = static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), std::make_pair(wanted, int64_t{0})) - sorted.begin());
    for (const size_t k : {at % sorted.size(), (at + sorted.size() - 1) % sorted.size()}) {
      const double apart = std::abs(sorted[k].first - wanted), off = std::min(apart, 2 * kPi - apart);
      if (off < best.off) best = {.first = static_cast<int64_t>(i), .second = sorted[k].second, .off = off};
    }
  }
  return best;
}

absl::Status Check(const CenterConfig& c) {
  if (c.method != CenterMethod::kVo && c.method != CenterMethod::kEntropy && c.method != CenterMethod::kPhaseCorrelation) {
    return InvalidField("method", absl::StrCat("has the unknown value ", static_cast<int>(c.method)));
  }
  if (c.angles_rad.size() < 2 || c.angles_rad.size() > 65535) {
    return InvalidField("angles_rad", absl::StrCat("has ", c.angles_rad.size(), " angles; allowed 2 to 65535"));
  }
  for (size_t i = 0; i < c.angles_rad.size(); ++i) {
    if (!std::isfinite(c.angles_rad[i])) return InvalidField(absl::StrCat("angles_rad[", i, "]"), "is not finite");
  }
  OCTAVO_RETURN_IF_ERROR(Between("slices", c.slices, 1, 4096));
  OCTAVO_RETURN_IF_ERROR(Between("detectors", c.detectors, 8, 32768));
  OCTAVO_RETURN_IF_ERROR(Within("search_min", c.search_min, true, "finite values"));
  OCTAVO_RETURN_IF_ERROR(Within("search_max", c.search_max, c.search_max >= c.search_min, absl::StrCat("from search_min (", c.search_min, ") on")));
  const double half = 0.5 * static_cast<double>(c.detectors - 1);
  if (c.search_min > half || c.search_max < -half) {
    return InvalidField(c.search_min > half ? "search_min" : "search_max", absl::StrCat("lies beyond the detector; allowed ", -half, " to ", half));
  }
  if (c.method == CenterMethod::kVo) {
    OCTAVO_RETURN_IF_ERROR(Within("fine_radius", c.fine_radius, c.fine_radius >= 1 && c.fine_radius <= half, absl::StrCat("1 to ", half)));
    OCTAVO_RETURN_IF_ERROR(Within("fine_step", c.fine_step, c.fine_step >= 0.05 && c.fine_step <= c.fine_radius, "0.05 to fine_radius"));
    OCTAVO_RETURN_IF_ERROR(Within("object_ratio", c.object_ratio, c.object_ratio > 0 && c.object_ratio <= 4, "above 0, up to 4"));
    return Between("drop", c.drop, 0, 1024);
  }
  OCTAVO_RETURN_IF_ERROR(Within("tolerance", c.tolerance, c.tolerance >= 0.01 && c.tolerance <= 1, "0.01 to 1"));
  if (c.method == CenterMethod::kEntropy) return Within("mask_ratio", c.mask_ratio, c.mask_ratio > 0 && c.mask_ratio <= 1, "above 0, up to 1");
  const Pair pair = OppositePair(c.angles_rad);
  if (pair.off <= 2 * kPi / 180) return absl::OkStatus();
  return InvalidField("angles_rad",
                      absl::StrCat("has no two angles half a turn apart; the nearest are off by ", pair.off * 180 / kPi, "°, allowed 2°"));
}

/// What of the search lies on the detector, as centres.
std::pair<double, double> SearchRange(const CenterConfig& c) {
  const double last = static_cast<double>(c.detectors - 1), middle = 0.5 * last;
  return {std::clamp(middle + c.search_min, 0.0, last), std::clamp(middle + c.search_max, 0.0, last)};
}

class Finder {
 public:
  Finder(StreamRef stream, const CenterConfig& config, Device& device) : stream_(stream), config_(config), device_(device) {}

  static TomographyConfig TrialConfig(const CenterConfig& c, std::vector<double> centers) {
    TomographyConfig t;
    t.algorithm = TomographyAlgorithm::kFbp;
    t.angles_rad = c.angles_rad;
    t.detectors = c.detectors;
    t.slices = static_cast<int64_t>(centers.size());
    t.centers = std::move(centers);
    t.mask_ratio = c.mask_ratio;
    t.filter = ProjectionFilter::kParzen;
    return t;
  }
  static int64_t TrialsAtOnce(const CenterConfig& c) {
    const auto image = c.detectors * c.detectors, sinogram = static_cast<int64_t>(c.angles_rad.size()) * c.detectors;
    return std::clamp<int64_t>(kWorkBytes / (kFloat * (2 * image + 3 * sinogram)), 1, kTrialSlices);
  }
  static int64_t JoinsAtOnce(int64_t angles, int64_t detectors) {
    return std::clamp<int64_t>(kWorkBytes / (2 * JoinedBytes(angles, detectors)), 1, 32);
  }
  static int64_t JoinedBytes(int64_t angles, int64_t detectors) { return 2 * angles * detectors * static_cast<int64_t>(sizeof(ComplexF)); }

  absl::StatusOr<CenterResult> Run(const CenterInput& input) {
    if (config_.method == CenterMethod::kPhaseCorrelation) return PhaseCorrelation(input);
    OCTAVO_ASSIGN_OR_RETURN(const Doubles sinogram, MeanSinogram(input));
    return config_.method == CenterMethod::kVo ? Vo(sinogram) : Entropy(sinogram);
  }

 private:
  int64_t angles() const { return static_cast<int64_t>(config_.angles_rad.size()); }

  absl::Status Download(void* to, const void* from, int64_t bytes) {
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream_, to, from, bytes));
    return stream_.Synchronize();
  }
  template <class T>
  absl::StatusOr<DeviceBuffer> Upload(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer buffer, device_.Allocate(bytes));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(stream_, buffer.data(), values.data(), bytes));
    OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
    return buffer;
  }
  static absl::Status NotFinite() { return InvalidField("data", "is not finite everywhere"); }

  /// Mean over the slices, [angle, detector].
  absl::StatusOr<Doubles> MeanSinogram(const CenterInput& input) {
    const int64_t outer = input.angle_first ? angles() : config_.slices, count = (input.angle_first ? config_.slices : angles()) * config_.detectors;
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer part, device_.AllocatePinned(count * kFloat));
    Doubles mean(static_cast<size_t>(angles() * config_.detectors), 0.0);
    for (int64_t i = 0; i < outer; ++i) {
      OCTAVO_RETURN_IF_ERROR(Download(part.data(), input.data + i * count, count * kFloat));
      for (int64_t k = 0; k < count; ++k) {
        const float value = part.as<float>()[k];
        if (!math::IsFinite(value)) return NotFinite();
        const int64_t to = input.angle_first ? i * config_.detectors + k % config_.detectors : k;
        mean[static_cast<size_t>(to)] += static_cast<double>(value) / static_cast<double>(config_.slices);
      }
    }
    return mean;
  }

  // -- vo

  /// Gaussian filter as scipy.ndimage has it: up to 4 σ, edges mirrored.
  static Doubles Smoothed(const Doubles& in, int64_t rows, int64_t columns, double sigma_rows, double sigma_columns) {
    const auto along = [&](const Doubles& from, double sigma, int64_t lines, int64_t n, int64_t line_stride, int64_t stride) {
      const auto radius = static_cast<int64_t>(std::lround(4 * sigma));
      Doubles weights, to(from.size());
      for (int64_t k = -radius; k <= radius; ++k) weights.push_back(std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma)));
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (int64_t line = 0; line < lines; ++line) {
        for (int64_t i = 0; i < n; ++i) {
          double sum = 0;
          for (int64_t k = -radius; k <= radius; ++k) {
            sum += weights[static_cast<size_t>(k + radius)] * from[static_cast<size_t>(line * line_stride + math::Mirrored(i + k, n) * stride)];
          }
          to[static_cast<size_t>(line * line_stride + i * stride)] = sum / total;
        }
      }
      return to;
    };
    return along(along(in, sigma_rows, columns, rows, 1, columns), sigma_columns, rows, columns, columns, 1);
  }
  static std::vector<float> Mirror(const Doubles& in, int64_t columns, bool spline) {
    std::vector<float> out(in.size());
    Doubles row(static_cast<size_t>(columns));
    for (size_t start = 0; start < in.size(); start += row.size()) {
      std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(start), row.size(), row.rbegin());
      if (spline) SplineCoefficients(row);
      for (size_t i = 0; i < row.size(); ++i) out[start + i] = static_cast<float>(row[i]);
    }
    return out;
  }
  /// Cubic B-spline coefficients, mirrored at the end samples (Unser 1999).
  static void SplineCoefficients(Doubles& c) {
    const double z = std::sqrt(3.0) - 2;
    const auto n = static_cast<int64_t>(c.size());
    const auto at = [&](int64_t i) -> double& { return c[static_cast<size_t>(i)]; };
    double first = 0, power = 1;
    for (int64_t k = 0; k < 40; ++k, power *= z) {
      const int64_t period = 2 * (n - 1), i = k % period;
      first += power * at(i < n ? i : period - i);
    }
    at(0) = first;
    for (int64_t i = 1; i < n; ++i) at(i) += z * at(i - 1);
    at(n - 1) = z / (z * z - 1) * (at(n - 1) + z * at(n - 2));
    for (int64_t i = n - 2; i >= 0; --i) at(i) = z * (at(i + 1) - at(i));
    for (double& value : c) value *= 6;
  }

  /// Mean outside of the double wedge for the shifts first + k · step.
  absl::StatusOr<Doubles> WedgeScores(const Doubles& sinogram, int64_t columns, bool whole, double first, double step, int64_t count) {
    const int64_t rows = 2 * angles(), batch = std::min(count, JoinsAtOnce(angles(), columns));
    SinogramOps& ops = device_.sinograms();
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer data, Upload(std::vector<float>(sinogram.begin(), sinogram.end())));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer mirror, Upload(Mirror(sinogram, columns, !whole)));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer joined, device_.Allocate(batch * JoinedBytes(angles(), columns)));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer turned, device_.Allocate(batch * JoinedBytes(angles(), columns)));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer sums, device_.Allocate(batch * kWedgeParts * 8));
    const FftSpec along_rows{.n = columns, .rows = batch * rows}, along_columns{.n = rows, .rows = batch * columns};
    OCTAVO_ASSIGN_OR_RETURN(const int64_t row_bytes, device_.arrays().PrepareFft(along_rows));
    OCTAVO_ASSIGN_OR_RETURN(const int64_t column_bytes, device_.arrays().PrepareFft(along_columns));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer work, device_.Allocate(std::max<int64_t>({row_bytes, column_bytes, 256})));
    const double radius = 0.5 * config_.object_ratio * static_cast<double>(columns);
    const double slope = static_cast<double>(rows - 1) / (static_cast<double>(rows) * 2 * kPi) / radius * static_cast<double>(columns);
    const int64_t drop = std::min<int64_t>(config_.drop, static_cast<int64_t>(std::ceil(0.1 * static_cast<double>(rows))));
    Doubles scores, parts(static_cast<size_t>(batch * kWedgeParts));
    for (int64_t begin = 0; begin < count; begin += batch) {
      const JoinSpec join{.count = batch,
                          .angles = angles(),
                          .detectors = columns,
                          .first_shift = first + static_cast<double>(begin) * step,
                          .shift_step = step,
                          .whole = whole};
      OCTAVO_RETURN_IF_ERROR(ops.Join(stream_, join, data.as<float>(), mirror.as<float>(), joined.as<ComplexF>()));
      OCTAVO_RETURN_IF_ERROR(device_.arrays().Fft(stream_, along_rows, joined.data(), work.data()));
      OCTAVO_RETURN_IF_ERROR(ops.Transpose(stream_, batch, rows, columns, joined.as<ComplexF>(), turned.as<ComplexF>()));
      OCTAVO_RETURN_IF_ERROR(device_.arrays().Fft(stream_, along_columns, turned.data(), work.data()));
      OCTAVO_RETURN_IF_ERROR(ops.WedgeSums(stream_, batch, rows, columns, slope, drop, turned.as<ComplexF>(), sums.as<double>()));
      OCTAVO_RETURN_IF_ERROR(Download(parts.data(), sums.data(), batch * kWedgeParts * 8));
      for (int64_t k = 0; k < std::min(batch, count - begin); ++k) {
        const auto part = parts.begin() + k * kWedgeParts;
        scores.push_back(std::accumulate(part, part + kWedgeParts, 0.0) / static_cast<double>(rows * columns));
      }
    }
    return scores;
  }

  absl::StatusOr<CenterResult> Vo(const Doubles& sinogram) {
    const auto [least, most] = SearchRange(config_);
    const int64_t n = config_.detectors;
    const double middle = 0.5 * static_cast<double>(n - 1);
    // Coarse: whole shifts of the mirrored half, which move the centre by halves.
    Doubles coarse = Smoothed(sinogram, angles(), n, 3, 1);
    int64_t columns = n, group = 1;
    if (angles() * n > kLarge) {
      group = 4;
      columns = n / group;
      Doubles grouped(static_cast<size_t>(angles() * columns));
      for (int64_t i = 0; i < angles() * columns; ++i) {
        for (int64_t k = 0; k < group; ++k) grouped[static_cast<size_t>(i)] += coarse[static_cast<size_t>(i / columns * n + i % columns * group + k)];
      }
      coarse = std::move(grouped);
    }
    const auto in_groups = [&](double center) { return (center - 0.5 * static_cast<double>(group - 1)) / static_cast<double>(group); };
    const double group_middle = 0.5 * static_cast<double>(columns - 1);
    const double first = std::round(2 * (in_groups(least) - group_middle)), last = std::round(2 * (in_groups(most) - group_middle));
    OCTAVO_ASSIGN_OR_RETURN(const Doubles rough, WedgeScores(coarse, columns, true, first, 1, static_cast<int64_t>(last - first) + 1));
    const auto at = std::min_element(rough.begin(), rough.end()) - rough.begin();
    const double found = group_middle + 0.5 * (first + static_cast<double>(at));
    CenterResult result;
    result.at_edge = rough.size() > 2 && (at == 0 || at + 1 == static_cast<std::ptrdiff_t>(rough.size()));
    // Fine: parts of pixels.
    const double from =
        std::clamp(found * static_cast<double>(group) + 0.5 * static_cast<double>(group - 1) - config_.fine_radius, 0.0, static_cast<double>(n - 1));
    const double to = std::min(from + 2 * config_.fine_radius, static_cast<double>(n - 1));
    const auto count = static_cast<int64_t>(std::floor((to - from) / config_.fine_step + 1e-9)) + 1;
    const Doubles fine = Smoothed(sinogram, angles(), n, 2, 2);
    OCTAVO_ASSIGN_OR_RETURN(result.scores, WedgeScores(fine, n, false, 2 * (from - middle), 2 * config_.fine_step, count));
    for (int64_t k = 0; k < count; ++k) result.centers.push_back(from + static_cast<double>(k) * config_.fine_step);
    result.center = result.centers[static_cast<size_t>(std::min_element(result.scores.begin(), result.scores.end()) - result.scores.begin())];
    return result;
  }

  // -- entropy

  absl::StatusOr<CenterResult> Entropy(const Doubles& sinogram) {
    const auto [least, most] = SearchRange(config_);
    const int64_t at_once = TrialsAtOnce(config_), pixels = config_.detectors * config_.detectors;
    std::vector<float> copies;
    for (int64_t k = 0; k < at_once; ++k) copies.insert(copies.end(), sinogram.begin(), sinogram.end());
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer data, Upload(copies));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer images, device_.Allocate(at_once * pixels * kFloat));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer counts, device_.Allocate(at_once * kBins * 8));
    const auto trial = [&](const std::vector<double>& centers) -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const auto reconstructor, Reconstructor::Create(TrialConfig(config_, centers), device_));
      const TomographyInput input{.data = data.as<float>(), .angle_first = false, .slices = static_cast<int64_t>(centers.size())};
      return reconstructor->Run(stream_, input, nullptr, images.as<float>(), {}).status();
    };
    OCTAVO_RETURN_IF_ERROR(trial({0.5 * (least + most)}));
    std::vector<float> image(static_cast<size_t>(pixels));
    OCTAVO_RETURN_IF_ERROR(Download(image.data(), images.data(), pixels * kFloat));
    const auto [low, high] = std::minmax_element(image.begin(), image.end());
    const auto wider = [](float v, bool up) { return static_cast<double>(v) * ((v < 0) == up ? 0.5 : 2); };
    HistogramSpec histogram{.in = Scalar::kF32, .count = pixels, .bins = kBins, .lo = wider(*low, false), .hi = wider(*high, true)};
    if (!(histogram.hi > histogram.lo)) return InvalidField("data", "gives an image without contrast");
    std::vector<std::pair<double, double>> tried;  // centre, entropy
    const auto score = [&](const std::vector<double>& centers) -> absl::Status {
      for (size_t begin = 0; begin < centers.size(); begin += static_cast<size_t>(at_once)) {
        const auto count = std::min(static_cast<size_t>(at_once), centers.size() - begin);
        const auto start = centers.begin() + static_cast<std::ptrdiff_t>(begin);
        OCTAVO_RETURN_IF_ERROR(trial(std::vector<double>(start, start + static_cast<std::ptrdiff_t>(count))));
        for (size_t k = 0; k < count; ++k) {
          OCTAVO_RETURN_IF_ERROR(device_.arrays().Histogram(stream_, histogram, images.as<float>() + static_cast<int64_t>(k) * pixels,
                                                            counts.as<uint64_t>() + static_cast<int64_t>(k) * kBins));
        }
        std::vector<uint64_t> bins(count * kBins);
        OCTAVO_RETURN_IF_ERROR(Download(bins.data(), counts.data(), static_cast<int64_t>(bins.size()) * 8));
        for (size_t k = 0; k < count; ++k) {
          double entropy = 0;
          for (size_t b = 0; b < kBins; ++b) {
            const double part = static_cast<double>(bins[k * kBins + b]) / static_cast<double>(pixels) + 1e-12;
            entropy -= part * std::log2(part);
          }
          tried.emplace_back(centers[begin + k], entropy);
        }
      }
      return absl::OkStatus();
    };
    const auto best = [&] { return *std::min_element(tried.begin(), tried.end(), [](const auto& a, const auto& b) { return a.second < b.second; }); };
    // About a hundred over all of the range, then ever finer around the best.
    double step = std::max(config_.tolerance, std::min(std::max(1.0, (most - least) / 100), std::max(most - least, 1e-9)));
    std::vector<double> centers;
    for (double center = least; center <= most + 1e-9; center += step) centers.push_back(center);
    OCTAVO_RETURN_IF_ERROR(score(centers));
    CenterResult result;
    result.at_edge = centers.size() > 2 && (best().first <= least + 1e-9 || best().first >= centers.back() - 1e-9);
    while (step > config_.tolerance) {
      const double middle = best().first, finer = std::max(step / 4, config_.tolerance);
      centers.clear();
      for (double off = finer; off < step - 1e-9; off += finer) {
        if (middle - off >= least) centers.push_back(middle - off);
        if (middle + off <= most) centers.push_back(middle + off);
      }
      step = finer;
      OCTAVO_RETURN_IF_ERROR(score(centers));
    }
    result.center = best().first;
    std::sort(tried.begin(), tried.end());
    for (const auto& [center, entropy] : tried) {
      result.centers.push_back(center);
      result.scores.push_back(entropy);
    }
    return result;
  }

  // -- phase correlation

  absl::StatusOr<CenterResult> PhaseCorrelation(const CenterInput& input) {
    const Pair pair = OppositePair(config_.angles_rad);
    const int64_t n = config_.detectors, slices = config_.slices;
    std::vector<ComplexF> rows(static_cast<size_t>(2 * slices * n));
    std::vector<float> row(static_cast<size_t>(n));
    for (int64_t i = 0; i < 2 * slices; ++i) {
      const int64_t slice = i % slices, angle = i < slices ? pair.first : pair.second;
      const int64_t at = input.angle_first ? angle * slices + slice : slice * angles() + angle;
      OCTAVO_RETURN_IF_ERROR(Download(row.data(), input.data + at * n, n * kFloat));
      for (int64_t x = 0; x < n; ++x) {
        const float value = row[static_cast<size_t>(i < slices ? x : n - 1 - x)];
        if (!math::IsFinite(value)) return NotFinite();
        rows[static_cast<size_t>(i * n + x)] = {value, 0.0f};
      }
    }
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer data, Upload(rows));
    const FftSpec fft{.n = n, .rows = 2 * slices};
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, device_.arrays().PrepareFft(fft));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer work, device_.Allocate(std::max<int64_t>(bytes, 256)));
    OCTAVO_RETURN_IF_ERROR(device_.arrays().Fft(stream_, fft, data.data(), work.data()));
    OCTAVO_RETURN_IF_ERROR(Download(rows.data(), data.data(), static_cast<int64_t>(rows.size() * sizeof(ComplexF))));
    // Phases of the cross spectrum, summed over the slices before their lengths go.
    Doubles re(static_cast<size_t>(n / 2 + 1)), im(re.size());
    for (int64_t slice = 0; slice < slices; ++slice) {
      for (size_t k = 1; k < re.size(); ++k) {
        const ComplexF &a = rows[static_cast<size_t>(slice * n) + k], &b = rows[static_cast<size_t>((slices + slice) * n) + k];
        re[k] += static_cast<double>(a.re) * static_cast<double>(b.re) + static_cast<double>(a.im) * static_cast<double>(b.im);
        im[k] += static_cast<double>(a.im) * static_cast<double>(b.re) - static_cast<double>(a.re) * static_cast<double>(b.im);
      }
    }
    for (size_t k = 0; k < re.size(); ++k) {
      const double length = std::hypot(re[k], im[k]);
      if (length > 0) re[k] /= length, im[k] /= length;
    }
    // A centre c is a shift of 2 c − (n − 1).
    const auto correlation = [&](double center) {
      const double turn = 2 * kPi * (2 * center - static_cast<double>(n - 1)) / static_cast<double>(n);
      double sum = 0;
      for (size_t k = 1; k < re.size(); ++k) {
        sum += re[k] * std::cos(turn * static_cast<double>(k)) - im[k] * std::sin(turn * static_cast<double>(k));
      }
      return sum / static_cast<double>(re.size());
    };
    const auto [least, most] = SearchRange(config_);
    std::vector<std::pair<double, double>> tried;
    const auto best = [&] {
      return std::max_element(tried.begin(), tried.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
    };
    const auto scan = [&](double from, double to, double step) {
      for (double center = from; center <= to + 1e-9; center += step) tried.emplace_back(center, correlation(center));
    };
    scan(least, most, 0.25);
    CenterResult result;
    const double rough = best();
    result.at_edge = tried.size() > 2 && (rough <= least + 1e-9 || rough >= tried.back().first - 1e-9);
    scan(std::max(least, rough - 0.5), std::min(most, rough + 0.5), config_.tolerance);
    result.center = best();
    std::sort(tried.begin(), tried.end());
    for (const auto& [center, score] : tried) {
      result.centers.push_back(center);
      result.scores.push_back(score);
    }
    return result;
  }

  const StreamRef stream_;
  const CenterConfig& config_;
  Device& device_;
};

}  // namespace

absl::StatusOr<int64_t> FindCenterBytes(const CenterConfig& c, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(c));
  const auto angles = static_cast<int64_t>(c.angles_rad.size());
  if (c.method == CenterMethod::kPhaseCorrelation) {
    const FftSpec fft{.n = c.detectors, .rows = 2 * c.slices};
    OCTAVO_ASSIGN_OR_RETURN(const int64_t work, device.arrays().PrepareFft(fft));
    return 2 * c.slices * c.detectors * static_cast<int64_t>(sizeof(ComplexF)) + std::max<int64_t>(work, 256);
  }
  if (c.method == CenterMethod::kVo) {
    // The fine search takes the most; transforms of its size may want as much again.
    const int64_t batch = Finder::JoinsAtOnce(angles, c.detectors), rows = 2 * angles;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t a, device.arrays().PrepareFft({.n = c.detectors, .rows = batch * rows}));
    OCTAVO_ASSIGN_OR_RETURN(const int64_t b, device.arrays().PrepareFft({.n = rows, .rows = batch * c.detectors}));
    return 2 * angles * c.detectors * kFloat + 2 * batch * Finder::JoinedBytes(angles, c.detectors) + batch * kWedgeParts * 8 +
           std::max<int64_t>({a, b, 256});
  }
  const int64_t at_once = Finder::TrialsAtOnce(c);
  std::vector<double> centers;
  for (int64_t k = 0; k < at_once; ++k) centers.push_back(static_cast<double>(k));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t trial, Reconstructor::DeviceBytes(Finder::TrialConfig(c, centers), device));
  return at_once * ((angles + c.detectors) * c.detectors * kFloat + kBins * 8) + trial;
}

absl::StatusOr<CenterResult> FindCenter(StreamRef stream, const CenterConfig& config, const CenterInput& input, Device& device) {
  OCTAVO_RETURN_IF_ERROR(Check(config));
  if (input.data == nullptr) return InvalidField("data", "is missing");
  return Finder(stream, config, device).Run(input);
}

}  // namespace octavo
