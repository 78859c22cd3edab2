#include "gpu/tomography/reconstruct_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr int64_t kMaxDetectors = 32768, kMaxAngles = 65536, kMaxSlices = 4096, kMaxGrid = 65536,
                  kMaxIterations = 1000000;

absl::Status Between(const char* field, int64_t value, int64_t lo, int64_t hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return FieldOutOfRange(field, value, lo, hi);
}

absl::Status Finite(const char* field, double value, bool allowed, const char* what) {
  if (std::isfinite(value) && allowed) return absl::OkStatus();
  return FieldNotAllowed(field, value, what);
}

absl::Status CheckGeometry(const TomographyConfig& c) {
  OCTAVO_RETURN_IF_ERROR(Between("detectors", c.detectors, 2, kMaxDetectors));
  OCTAVO_RETURN_IF_ERROR(Between("slices", c.slices, 1, kMaxSlices));
  OCTAVO_RETURN_IF_ERROR(
      Between("angles_rad", static_cast<int64_t>(c.angles_rad.size()), 1, kMaxAngles));
  for (size_t i = 0; i < c.angles_rad.size(); ++i) {
    if (!std::isfinite(c.angles_rad[i]))
      return InvalidField("angles_rad", absl::StrCat("angle ", i, " is ", c.angles_rad[i],
                                                     "; allowed are finite values"));
  }
  OCTAVO_RETURN_IF_ERROR(Between("image_size", c.image_size, 0, kMaxDetectors));
  OCTAVO_RETURN_IF_ERROR(Finite("pixel_size", c.pixel_size,
                                c.pixel_size >= 1e-12 && c.pixel_size <= 1e12, "1e-12 to 1e12"));
  const auto centers = static_cast<int64_t>(c.centers.size());
  if (centers > 1 && centers != c.slices) {
    return InvalidField(
        "centers",
        absl::StrCat("has ", centers, " values; allowed are none, one, or one per slice (",
                     c.slices, ")"));
  }
  for (const double center : c.centers) {
    const auto d = static_cast<double>(c.detectors);
    OCTAVO_RETURN_IF_ERROR(Finite("centers", center, center >= -d && center <= 2 * d,
                                  "-detectors to 2 x detectors (a pixel index)"));
  }
  return absl::OkStatus();
}

absl::Status CheckTomopyForm(const TomographyConfig& c) {
  if (c.algorithm != TomographyAlgorithm::kSirt && c.algorithm != TomographyAlgorithm::kMlem) {
    return InvalidField("algorithm", "the tomopy form has sirt and mlem only");
  }
  if (!c.centers.empty())
    return InvalidField(
        "centers",
        "the tomopy form ignores the centre; allowed is none (its axis is the middle of the grid)");
  if (c.image_size != 0 && c.image_size != c.detectors) {
    return InvalidField(
        "image_size",
        absl::StrCat("is ", c.image_size, "; the tomopy form allows the number of detectors (",
                     c.detectors, ") only"));
  }
  if (c.pixel_size != 1)
    return InvalidField("pixel_size",
                        absl::StrCat("is ", c.pixel_size, "; the tomopy form allows 1 only"));
  if (c.relaxation != 1)
    return InvalidField("relaxation",
                        absl::StrCat("is ", c.relaxation, "; the tomopy form allows 1 only"));
  if (c.subsets != 1)
    return InvalidField("subsets",
                        absl::StrCat("is ", c.subsets, "; the tomopy form allows 1 only"));
  if (c.has_min || c.has_max)
    return InvalidField(c.has_min ? "min_value" : "max_value", "the tomopy form has no bounds");
  if (c.stop_change != 0 || c.stop_residual != 0) {
    return InvalidField(c.stop_change != 0 ? "stop_change" : "stop_residual",
                        "the tomopy form stops after its iterations only; allowed is 0");
  }
  return absl::OkStatus();
}

absl::Status CheckIteration(const TomographyConfig& c) {
  const bool sirt = c.algorithm == TomographyAlgorithm::kSirt,
             mlem = c.algorithm == TomographyAlgorithm::kMlem,
             tv = c.algorithm == TomographyAlgorithm::kTv;
  OCTAVO_RETURN_IF_ERROR(Between("iterations", c.iterations, 1, kMaxIterations));
  OCTAVO_RETURN_IF_ERROR(Between("piece_samples", c.piece_samples, 0, int64_t{1} << 60));
  OCTAVO_RETURN_IF_ERROR(
      Finite("relaxation", c.relaxation, c.relaxation > 0 && c.relaxation < 2, "above 0, below 2"));
  if (!sirt && c.relaxation != 1)
    return InvalidField("relaxation", "only sirt has one; allowed is 1");
  OCTAVO_RETURN_IF_ERROR(
      Between("subsets", c.subsets, 1, static_cast<int64_t>(c.angles_rad.size())));
  if (!sirt && !mlem && c.subsets != 1)
    return InvalidField("subsets",
                        absl::StrCat("is ", c.subsets, "; only sirt and mlem have subsets"));
  OCTAVO_RETURN_IF_ERROR(Finite("min_value", c.min_value, true, "finite values"));
  OCTAVO_RETURN_IF_ERROR(Finite("max_value", c.max_value, true, "finite values"));
  if (!sirt && !mlem && !tv && (c.has_min || c.has_max)) {
    return InvalidField(c.has_min ? "min_value" : "max_value",
                        "only sirt, mlem and tv have bounds");
  }
  if (!tv && c.tv_weight != 0)
    return InvalidField("tv_weight", absl::StrCat("is ", c.tv_weight, "; only tv has one"));
  if (tv)
    OCTAVO_RETURN_IF_ERROR(Finite("tv_weight", c.tv_weight, c.tv_weight > 0 && c.tv_weight <= 1e12,
                                  "above 0, up to 1e12: about the contrast of noise"));
  if (mlem && c.has_min && c.min_value < 0)
    return InvalidField("min_value", absl::StrCat("is ", c.min_value, "; mlem allows 0 or more"));
  if (c.has_min && c.has_max && c.min_value > c.max_value) {
    return InvalidField("min_value", absl::StrCat("is ", c.min_value, "; allowed up to max_value (",
                                                  c.max_value, ")"));
  }
  // With more, the first iteration would be the last one.
  OCTAVO_RETURN_IF_ERROR(Finite("stop_change", c.stop_change,
                                c.stop_change >= 0 && c.stop_change <= 1,
                                "0 (never) to 1, a part of the image: 0.001 is a thousandth"));
  OCTAVO_RETURN_IF_ERROR(Finite("stop_residual", c.stop_residual,
                                c.stop_residual >= 0 && c.stop_residual <= 1,
                                "0 (never) to 1, a part of the data: 0.01 is a hundredth"));
  return Finite("ratio_floor", c.ratio_floor, c.ratio_floor >= 1e-30, "1e-30 or more");
}

absl::Status CheckAccuracy(const TomographyConfig& c) {
  if (c.algorithm != TomographyAlgorithm::kFourier) {
    if (c.fourier_accuracy == TomographyConfig::kUsualAccuracy) return absl::OkStatus();
    return InvalidField("fourier_accuracy",
                        absl::StrCat("is ", c.fourier_accuracy, "; only fourier has one"));
  }
  return Finite("fourier_accuracy", c.fourier_accuracy,
                c.fourier_accuracy >= 1e-6 && c.fourier_accuracy <= 1e-2, "1e-6 to 1e-2");
}

// Whether each ray is also measured from the opposite side, as in scans over 360°: no gap reaches a
// quarter turn.
bool CoversFullTurn(const std::vector<double>& angles, size_t stride) {
  // A gap of a quarter turn ends in two different parts of the turn, which are narrower than that:
  // it lies between the last angle of one part and the first one of the next that has angles.
  constexpr int kParts = 64;
  struct Part {
    double first = 2 * kPi, last = -1;
  };
  std::array<Part, kParts> parts;
  for (size_t i = 0; i < angles.size(); i += stride) {
    const double turned = angles[i] - 2 * kPi * std::floor(angles[i] / (2 * kPi));
    const int at = std::clamp(static_cast<int>(turned / (2 * kPi) * kParts), 0, kParts - 1);
    Part& part = parts[static_cast<size_t>(at)];
    part.first = std::min(part.first, turned);
    part.last = std::max(part.last, turned);
  }
  double first = -1, last = 0, gap = 0;
  for (const Part& part : parts) {
    if (part.last < 0) continue;
    if (first < 0)
      first = part.first;
    else
      gap = std::max(gap, part.first - last);
    last = part.last;
  }
  return std::max(gap, first + 2 * kPi - last) < kPi / 2;
}
bool CoversFullTurn(const std::vector<double>& angles) {
  // Where some of many angles leave no gap, all of them leave none.
  constexpr size_t kSome = 256;
  const size_t stride = angles.size() / kSome;
  return (stride > 1 && CoversFullTurn(angles, stride)) || CoversFullTurn(angles, 1);
}

// Whether rays step along columns; else along rows.
bool StepsAlongColumns(double angle) {
  return std::abs(std::sin(angle)) > std::abs(std::cos(angle));
}

// For bins that are interpolated over `width` of them.
math::BackAngle BackAngleFor(math::RayInterpolation interpolation, double angle, double scale,
                             double width) {
  const double cosine = std::cos(angle), sine = std::sin(angle),
               inverse = StepsAlongColumns(angle) ? -1 / sine : 1 / cosine;
  double b = scale / (width * width);
  if (interpolation == math::RayInterpolation::kCubic) b = 1 / width;
  if (interpolation == math::RayInterpolation::kNearest) b = std::copysign(width / 2, inverse);
  return {.cosine = static_cast<float>(cosine),
          .minus_sine = static_cast<float>(-sine),
          .a = static_cast<float>(scale / width),
          .b = static_cast<float>(b)};
}

double WindowAt(const TomographyConfig& c, double part) {  // part of the cut-off frequency, 0 … 1
  switch (c.filter) {
    case ProjectionFilter::kRamp: return 1;
    case ProjectionFilter::kSheppLogan:
      return part == 0 ? 1 : std::sin(kPi * part / 2) / (kPi * part / 2);
    case ProjectionFilter::kCosine: return std::cos(kPi * part / 2);
    case ProjectionFilter::kHann: return 0.5 + 0.5 * std::cos(kPi * part);
    case ProjectionFilter::kHamming: return 0.54 + 0.46 * std::cos(kPi * part);
    case ProjectionFilter::kParzen:
      return part < 0.5 ? 1 - 6 * part * part * (1 - part) : 2 * std::pow(1 - part, 3);
    case ProjectionFilter::kButterworth: return 1;
  }
  return 1;
}

}  // namespace

absl::Status CheckTomography(const TomographyConfig& c) {
  OCTAVO_RETURN_IF_ERROR(CheckGeometry(c));
  OCTAVO_RETURN_IF_ERROR(CheckIteration(c));
  if (c.form == TomographyForm::kTomopy) return CheckTomopyForm(c);
  OCTAVO_RETURN_IF_ERROR(
      Between("padding", c.padding, TomographyConfig::kAutomaticPadding, kMaxDetectors));
  OCTAVO_RETURN_IF_ERROR(Finite("support", c.support, c.support >= 1 && c.support <= 4, "1 to 4"));
  OCTAVO_RETURN_IF_ERROR(Finite("mask_ratio", c.mask_ratio, c.mask_ratio >= 0 && c.mask_ratio <= 1,
                                "0 (no mask) to 1"));
  OCTAVO_RETURN_IF_ERROR(Finite("filter_cutoff", c.filter_cutoff,
                                c.filter_cutoff > 0 && c.filter_cutoff <= 1, "above 0, up to 1"));
  OCTAVO_RETURN_IF_ERROR(Finite("filter_order", c.filter_order,
                                c.filter_order > 0 && c.filter_order <= 32, "above 0, up to 32"));
  OCTAVO_RETURN_IF_ERROR(CheckAccuracy(c));
  return Between("image_size and padding", PlanGrid(c).grid_size, 1, kMaxGrid);
}

absl::Status CheckProjectionsFinite(int64_t not_finite) {
  if (not_finite == 0) return absl::OkStatus();
  return InvalidField(
      "projections", absl::StrCat(not_finite, " values are not finite; allowed are finite values"));
}

BoundingEnds EndsThatBound(const std::vector<double>& angles_rad, int64_t detectors,
                           double center) {
  const double left = center, right = static_cast<double>(detectors - 1) - center,
               alike = 0.02 * static_cast<double>(detectors);
  if (!CoversFullTurn(angles_rad) || std::abs(left - right) <= alike) return {};
  return {.left = left > right, .right = right > left};
}

std::vector<double> AngleWeights(const std::vector<double>& angles_rad) {
  constexpr double kWide = 8;  // usual gaps
  constexpr double kMissing =
      13 * kPi / 180;  // a wider gap is left open, because weights at its ends would cause streaks
  constexpr double kEven = 1e-3;  // relative: angles in files are rounded
  const size_t count = angles_rad.size();
  const double even = kPi / static_cast<double>(count);
  const double same =
      0.01 * even;  // directions closer than this are the same, rounded after full turns
  std::vector<double> directions;
  for (const double angle : angles_rad) directions.push_back(angle - kPi * std::floor(angle / kPi));
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return directions[a] < directions[b]; });
  // The sorted projections in groups of one direction. The last group may continue in the first
  // one, half a turn later.
  std::vector<size_t> begins;
  for (size_t i = 0; i < count; ++i) {
    if (i == 0 || directions[order[i]] - directions[order[i - 1]] > same) begins.push_back(i);
  }
  const size_t groups = begins.size();
  const bool closed =
      groups > 1 && directions[order[0]] + kPi - directions[order[count - 1]] <= same;
  const size_t places = closed ? groups - 1 : groups;  // places of different directions
  if (places < 2) return std::vector<double>(count, even);
  std::vector<double> gaps;  // after each place
  for (size_t g = 0; g < places; ++g) {
    const double to =
        g + 1 < places ? directions[order[begins[g + 1]]] : directions[order[0]] + kPi;
    gaps.push_back(to - directions[order[begins[g]]]);
  }
  std::vector<double> sorted = gaps;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(places / 2),
                   sorted.end());
  const double usual = sorted[places / 2];
  bool missing = false;
  for (double& gap : gaps) {
    if (gap <= std::max(kWide * usual, kMissing)) continue;
    gap = usual;
    missing = true;
  }
  std::vector<double> weights(count);
  bool all_even = true;
  for (size_t g = 0; g < groups; ++g) {
    const size_t place = g % places, end = g + 1 < groups ? begins[g + 1] : count;
    size_t share = end - begins[g];
    if (closed && place == 0) share = (begins[1] - begins[0]) + (count - begins[groups - 1]);
    const double weight =
        0.5 * (gaps[place] + gaps[(place + places - 1) % places]) / static_cast<double>(share);
    for (size_t i = begins[g]; i < end; ++i) weights[order[i]] = weight;
    all_even = all_even && std::abs(weight - even) <= kEven * even;
  }
  if (all_even) std::fill(weights.begin(), weights.end(), even);
  // The measured directions are weighted up for the missing ones, so that the level does not
  // change.
  if (const double sum = std::accumulate(weights.begin(), weights.end(), 0.0); missing && sum > 0) {
    for (double& weight : weights) weight *= kPi / sum;
  }
  return weights;
}

// Direct algorithms interpolate between neighbouring bins at every angle, and sum over half a turn.
math::BackAngle BackAngleOf(const TomographyConfig& c, double angle_rad, double weight) {
  return BackAngleFor(c.interpolation, angle_rad, weight / c.pixel_size, 1);
}

TomographyGrid PlanGrid(const TomographyConfig& c) {
  TomographyGrid plan;
  plan.image_size = c.image_size == 0 ? c.detectors : c.image_size;
  std::vector<double> centers = c.centers;
  if (centers.empty()) centers.push_back(0.5 * static_cast<double>(c.detectors - 1));
  plan.shared_center = std::all_of(centers.begin(), centers.end(),
                                   [&](double center) { return center == centers[0]; });
  if (plan.shared_center) centers.resize(1);
  const bool full_turn = CoversFullTurn(c.angles_rad);
  double reach = 0, farthest = 0;
  for (const double center : centers) plan.centers.push_back(static_cast<float>(center));
  centers.insert(centers.end(), c.padding_centers.begin(), c.padding_centers.end());
  for (const double center : centers) {
    const double left = center, right = static_cast<double>(c.detectors - 1) - center;
    reach = std::max(reach, full_turn ? std::max(left, right) : std::min(left, right));
    farthest = std::max({farthest, left, right});
  }
  // Rays at the reach touch the circle with half the width of this grid as radius. The grid grows
  // by an even number of pixels, so that its middle does not move.
  const auto padding_for = [&](double radius) {
    const auto wanted = static_cast<int64_t>(std::ceil(2 * radius - 1e-6)) + 1;
    return std::max<int64_t>(0, (wanted - plan.image_size + 1) / 2);
  };
  const auto circle = [&](int64_t grid) {
    return c.mask_ratio == 0 ? 1e6f
                             : static_cast<float>(0.5 * c.mask_ratio * static_cast<double>(grid));
  };
  const bool automatic = c.padding == TomographyConfig::kAutomaticPadding,
             direct = !IsIterative(c.algorithm);
  const int64_t usual = !automatic ? c.padding : direct ? 0 : padding_for(reach);
  int64_t padding = usual;
  if (automatic && !direct && c.support > 1)
    padding = std::max(usual, padding_for(std::max(c.support * reach, farthest)));
  plan.grid_size = plan.image_size + 2 * padding;
  plan.radius = circle(plan.grid_size);
  if (padding > usual && c.mask_ratio > 0) plan.cut_radius = circle(plan.image_size + 2 * usual);
  return plan;
}

TomographyPlan PlanTomography(const TomographyConfig& c) {
  TomographyPlan plan;
  static_cast<TomographyGrid&>(plan) = PlanGrid(c);
  const bool direct = !IsIterative(c.algorithm);
  // Shifted by a quarter turn, so that the angles that step along rows are [0, π/2) and [π, 3π/2).
  const auto key = [&](size_t i) {
    double turned = std::fmod(c.angles_rad[i] + kPi / 4, 2 * kPi);
    return turned < 0 ? turned + 2 * kPi : turned;
  };
  std::vector<int32_t> sorted(c.angles_rad.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
    return key(static_cast<size_t>(a)) < key(static_cast<size_t>(b));
  });
  const auto columns = [&](int32_t i) {
    return StepsAlongColumns(c.angles_rad[static_cast<size_t>(i)]);
  };
  // Successive subsets are far apart in angle: their order is that of the bit-reversed numbers.
  std::vector<int64_t> subsets(static_cast<size_t>(c.subsets));
  std::iota(subsets.begin(), subsets.end(), int64_t{0});
  const auto reversed = [](int64_t n) {
    uint32_t r = 0;
    for (int bit = 0; bit < 32; ++bit) r |= static_cast<uint32_t>((n >> bit) & 1) << (31 - bit);
    return r;
  };
  std::stable_sort(subsets.begin(), subsets.end(),
                   [&](int64_t a, int64_t b) { return reversed(a) < reversed(b); });
  for (const int64_t subset : subsets) {
    AngleRange range{.begin = static_cast<int64_t>(plan.order.size()), .split = 0, .end = 0};
    for (const bool by_columns : {false, true}) {
      if (by_columns) range.split = static_cast<int64_t>(plan.order.size());
      for (auto i = static_cast<size_t>(subset); i < sorted.size();
           i += static_cast<size_t>(c.subsets)) {
        if (columns(sorted[i]) == by_columns) plan.order.push_back(sorted[i]);
      }
    }
    range.end = static_cast<int64_t>(plan.order.size());
    plan.subsets.push_back(range);
  }

  const std::vector<double> weights = direct ? AngleWeights(c.angles_rad) : std::vector<double>();
  for (const int32_t i : plan.order) {
    const double cosine = std::cos(c.angles_rad[static_cast<size_t>(i)]),
                 sine = std::sin(c.angles_rad[static_cast<size_t>(i)]);
    const double inverse = columns(i) ? -1 / sine : 1 / cosine;
    plan.forward.push_back(
        {.inverse = static_cast<float>(inverse),
         .slope = static_cast<float>(columns(i) ? cosine / sine : sine / cosine)});
    const double angle = c.angles_rad[static_cast<size_t>(i)];
    plan.back.push_back(
        direct ? BackAngleOf(c, angle, weights[static_cast<size_t>(i)])
               : BackAngleFor(c.interpolation, angle, c.pixel_size, 1 / std::abs(inverse)));
  }
  return plan;
}

ProjectionFilterTaps DesignProjectionFilter(const TomographyConfig& c) {
  // The ramp in space (Kak and Slaney 1988, eq. 3.61) is exact for its finite length; windows are
  // applied to its spectrum, which is even.
  const int64_t d = c.detectors;
  int64_t length = 64;
  while (length < 2 * d) length *= 2;
  const auto ramp = [](int64_t n) {
    return n == 0       ? 0.25
           : n % 2 == 0 ? 0.0
                        : -1 / (kPi * kPi * static_cast<double>(n) * static_cast<double>(n));
  };
  std::vector<double> half(static_cast<size_t>(d));  // taps of distance 0 … d − 1
  const bool plain = c.filter == ProjectionFilter::kRamp && c.filter_cutoff == 1;
  if (plain) {
    for (int64_t n = 0; n < d; ++n) half[static_cast<size_t>(n)] = ramp(n);
  } else {
    std::vector<double> cosines(static_cast<size_t>(length)),
        spectrum(static_cast<size_t>(length / 2 + 1));
    for (int64_t k = 0; k < length; ++k)
      cosines[static_cast<size_t>(k)] =
          std::cos(2 * kPi * static_cast<double>(k) / static_cast<double>(length));
    const auto cosine = [&](int64_t k, int64_t n) {
      return cosines[static_cast<size_t>((k * n) & (length - 1))];
    };
    for (int64_t k = 0; k <= length / 2; ++k) {
      double value = ramp(0) + ramp(length / 2) * cosine(k, length / 2);
      for (int64_t n = 1; n < length / 2; ++n) value += 2 * ramp(n) * cosine(k, n);
      const double part =
          2 * static_cast<double>(k) / static_cast<double>(length) / c.filter_cutoff;
      if (c.filter == ProjectionFilter::kButterworth) {
        value /= 1 + std::pow(part, 2 * c.filter_order);
      } else {
        value *= part > 1 ? 0 : WindowAt(c, part);
      }
      spectrum[static_cast<size_t>(k)] = value / static_cast<double>(length);
    }
    for (int64_t n = 0; n < d; ++n) {
      double value =
          spectrum[0] + spectrum[static_cast<size_t>(length / 2)] * cosine(length / 2, n);
      for (int64_t k = 1; k < length / 2; ++k)
        value += 2 * spectrum[static_cast<size_t>(k)] * cosine(k, n);
      half[static_cast<size_t>(n)] = value;
    }
  }
  ProjectionFilterTaps out;
  for (int64_t n = -(d - 1); n < d; ++n)
    out.taps.push_back(static_cast<float>(half[static_cast<size_t>(std::abs(n))]));
  if (c.extend_edges) {
    // The sum that the bins −1, −2 … −(d − 1) would add to bin i if all were equal to bin 0: the
    // taps of distance i + 1 … d − 1.
    std::vector<double> beyond(static_cast<size_t>(d), 0.0);
    for (int64_t i = d - 2; i >= 0; --i)
      beyond[static_cast<size_t>(i)] =
          beyond[static_cast<size_t>(i + 1)] + half[static_cast<size_t>(i + 1)];
    out.edge_left.assign(beyond.begin(), beyond.end());
    out.edge_right.assign(beyond.rbegin(), beyond.rend());
  }
  return out;
}

}  // namespace octavo::inline gpu
