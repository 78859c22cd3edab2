// The axis by the sharpest of trial images (Donath et al. 2006).

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/ops.h"
#include "gpu/tomo_center_parts.h"

namespace octavo {

absl::StatusOr<CenterResult> CenterFinder::Entropy(const Doubles& sinogram) {
  const auto [least, most] = CenterSearchRange(config_);
  const int64_t at_once = TrialsAtOnce(config_), pixels = config_.detectors * config_.detectors;
  std::vector<float> copies;
  for (int64_t k = 0; k < at_once; ++k) copies.insert(copies.end(), sinogram.begin(), sinogram.end());
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer data, Upload(copies));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer images, device_.Allocate(at_once * pixels * kFloat));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer counts, device_.Allocate(at_once * kBins * 8));
  const auto trial = [&](const std::vector<double>& centers) -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(const auto reconstructor, Reconstructor::Create(TrialConfig(config_, centers), device_));
    const TomographyInput input{.data = data.as<float>(), .angle_first = false, .slices = static_cast<int64_t>(centers.size())};
    return reconstructor->Run(stream_, input, nullptr, images.as<float>(), [&](const IterationReport&) { return !goes_on_ || goes_on_(); }).status();
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
      OCTAVO_RETURN_IF_ERROR(GoOn());
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

}  // namespace octavo
