// The axis for which a trial image is sharpest (Donath et al. 2006).
//
// A trial with a wrong axis turns every point into an arc. All trials use the same input: half a
// turn of projections, because over a whole turn a wrong axis makes two sharp images; a disc about
// the axis that all trials see from every direction, so that no trial wins because it excludes the
// object; rows that continue beyond the detector, so that no trial wins because of its cut edges;
// and one scale of grey levels.

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/tomography/directions.h"
#include "gpu/tomography/internal.h"
#include "gpu/tomography/reconstruct.h"

namespace octavo::inline gpu {
namespace {

using Doubles = CenterSearch::Doubles;

constexpr int kBins = 64;
constexpr double kRare =
    0.005;  // part of the values, at either end, that may lie outside the scale of grey levels
constexpr double kMargin = 0.5;  // part of the width of the scale, added on either side

/// The grid of trial images: `bin` columns of the detector per pixel, `radius` pixels about the
/// axis.
struct TrialGrid {
  int64_t bin = 1, radius = 0;
};
constexpr int64_t kCoarseColumns = 160, kFineColumns = 400;
constexpr int64_t kTrialSlices = 8;  // images that are reconstructed at once

struct GreyLevels {
  double low = 0, high = 0;
  bool set() const { return high > low; }
};

TomographyConfig TrialConfig(const CenterConfig& c, const TrialGrid& grid,
                             const std::vector<double>& angles_rad, std::vector<double> centers) {
  TomographyConfig t;
  t.algorithm = TomographyAlgorithm::kFbp;
  t.angles_rad = angles_rad;
  t.detectors = c.detectors / grid.bin;
  t.slices = static_cast<int64_t>(centers.size());
  t.centers = std::move(centers);
  t.image_size = 2 * grid.radius + 1;
  t.filter = ProjectionFilter::kParzen;
  t.extend_edges = true;
  return t;
}

int64_t TrialsAtOnce(const CenterConfig& c, const TrialGrid& grid, int64_t rows) {
  const int64_t size = 2 * grid.radius + 1, sinogram = rows * (c.detectors / grid.bin);
  return std::clamp<int64_t>(
      CenterSearch::kWorkBytes / (CenterSearch::kFloat * (2 * size * size + 3 * sinogram)), 1,
      kTrialSlices);
}

// The largest disc that the detector covers on both sides of all axes from `least` to `most`.
TrialGrid GridFor(const CenterConfig& c, int64_t bin, double least, double most) {
  const int64_t columns = c.detectors / bin;
  const auto binned = [&](double center) {
    return (center - 0.5 * static_cast<double>(bin - 1)) / static_cast<double>(bin);
  };
  const auto reach = static_cast<int64_t>(
      std::floor(std::min(binned(least), static_cast<double>(columns - 1) - binned(most))));
  return {.bin = bin,
          .radius = std::clamp<int64_t>(reach, std::min<int64_t>(8, columns / 2), columns / 2)};
}

// Columns are binned together as long as `columns` of them remain.
int64_t BinFor(const CenterConfig& c, int64_t columns) {
  int64_t bin = 1;
  while (c.detectors / (2 * bin) >= columns) bin *= 2;
  return bin;
}

/// The search by trial images.
class EntropySearch final : public CenterSearch {
 public:
  using CenterSearch::CenterSearch;
  absl::StatusOr<CenterResult> Run() const;

 private:
  /// Entropies, in bits, of the images about each centre. The grey levels are those of the first
  /// image unless they are given.
  absl::StatusOr<Doubles> Entropies(const Doubles& sinogram, const HalfTurn& turn,
                                    const TrialGrid& grid, const Doubles& centers,
                                    GreyLevels* levels) const;
};

absl::StatusOr<Doubles> EntropySearch::Entropies(const Doubles& sinogram, const HalfTurn& turn,
                                                 const TrialGrid& grid, const Doubles& centers,
                                                 GreyLevels* levels) const {
  const auto rows = static_cast<int64_t>(turn.rows.size());
  const int64_t columns = config_.detectors / grid.bin, size = 2 * grid.radius + 1,
                at_once = TrialsAtOnce(config_, grid, rows);
  std::vector<float> one;
  for (const int64_t row : turn.rows) {
    for (int64_t x = 0; x < columns; ++x) {
      double sum = 0;
      for (int64_t i = 0; i < grid.bin; ++i)
        sum += sinogram[static_cast<size_t>(row * config_.detectors + x * grid.bin + i)];
      one.push_back(static_cast<float>(sum / static_cast<double>(grid.bin)));
    }
  }
  std::vector<float> copies;
  for (int64_t k = 0; k < at_once; ++k) copies.insert(copies.end(), one.begin(), one.end());
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer data, Upload(copies));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer images,
                          device_.Allocate(at_once * size * size * kFloat));
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host,
                          device_.AllocatePinned(at_once * size * size * kFloat));
  const auto in_disc = [&](int64_t pixel) {
    const int64_t y = pixel / size - grid.radius, x = pixel % size - grid.radius;
    return x * x + y * y <= grid.radius * grid.radius;
  };
  Doubles entropies;
  for (size_t begin = 0; begin < centers.size(); begin += static_cast<size_t>(at_once)) {
    const size_t count = std::min(static_cast<size_t>(at_once), centers.size() - begin);
    Doubles binned;
    for (size_t k = 0; k < count; ++k) {
      binned.push_back((centers[begin + k] - 0.5 * static_cast<double>(grid.bin - 1)) /
                       static_cast<double>(grid.bin));
    }
    OCTAVO_ASSIGN_OR_RETURN(
        const auto reconstructor,
        Reconstructor::Create(TrialConfig(config_, grid, turn.angles_rad, binned), device_));
    const TomographyInput input{
        .data = data.span<float>(), .angle_first = false, .slices = static_cast<int64_t>(count)};
    OCTAVO_RETURN_IF_ERROR(
        reconstructor
            ->Run(stream_, input, nullptr, images.span<float>(),
                  [&](const IterationReport&) { return !input_.goes_on || input_.goes_on(); })
            .status());
    OCTAVO_RETURN_IF_ERROR(Download(
        host.span<float>(), images.span<float>().First(static_cast<int64_t>(count) * size * size)));
    OCTAVO_RETURN_IF_ERROR(GoOn());
    for (size_t k = 0; k < count; ++k) {
      const float* const image = host.as<float>() + static_cast<int64_t>(k) * size * size;
      std::vector<float> values;
      for (int64_t i = 0; i < size * size; ++i) {
        if (in_disc(i)) values.push_back(image[i]);
      }
      if (!levels->set()) {
        std::vector<float> sorted = values;
        std::sort(sorted.begin(), sorted.end());
        const auto rare = static_cast<size_t>(kRare * static_cast<double>(sorted.size()));
        const auto low = static_cast<double>(sorted[rare]),
                   high = static_cast<double>(sorted[sorted.size() - 1 - rare]);
        *levels = {.low = low - kMargin * (high - low), .high = high + kMargin * (high - low)};
        if (!levels->set()) return InvalidField("data", "gives an image without contrast");
      }
      int64_t counts[kBins] = {};
      for (const float value : values) {
        const double at =
            (static_cast<double>(value) - levels->low) / (levels->high - levels->low) * kBins;
        ++counts[static_cast<int>(std::clamp(at, 0.0, kBins - 1.0))];
      }
      double entropy = 0;
      for (const int64_t bin : counts) {
        const double part = static_cast<double>(bin) / static_cast<double>(values.size());
        if (bin > 0) entropy -= part * std::log2(part);
      }
      entropies.push_back(entropy);
    }
  }
  return entropies;
}

absl::StatusOr<CenterResult> EntropySearch::Run() const {
  OCTAVO_ASSIGN_OR_RETURN(const Doubles sinogram, MeanSinogram());
  const auto [least, most] = CenterSearchRange(config_);
  OCTAVO_ASSIGN_OR_RETURN(const HalfTurn turn, OneHalfTurn(config_.angles_rad));
  // Coarse over the whole range, then finer and finer around the best centre.
  CenterResult result;
  const int64_t coarse = BinFor(config_, kCoarseColumns), fine = BinFor(config_, kFineColumns);
  double step = std::max(
      {config_.tolerance, std::min(1.0, 0.25 * (most - least)), 0.5 * static_cast<double>(coarse)});
  for (double center = least; center <= most + 1e-9; center += step)
    result.centers.push_back(center);
  GreyLevels levels;
  const TrialGrid all = GridFor(config_, coarse, least, most);
  OCTAVO_RETURN_IF_ERROR(Entropies(sinogram, turn, all, {0.5 * (least + most)}, &levels).status());
  OCTAVO_ASSIGN_OR_RETURN(result.scores, Entropies(sinogram, turn, all, result.centers, &levels));
  auto best = static_cast<size_t>(std::min_element(result.scores.begin(), result.scores.end()) -
                                  result.scores.begin());
  result.at_edge = result.centers.size() > 2 && (best == 0 || best + 1 == result.centers.size());
  result.center = result.centers[best];
  while (step > config_.tolerance) {
    const double from = std::max(least, result.center - 1.5 * step),
                 to = std::min(most, result.center + 1.5 * step);
    step = std::max(step / 4, config_.tolerance);
    Doubles centers;
    for (double center = from; center <= to + 1e-9; center += step) centers.push_back(center);
    GreyLevels near;
    const TrialGrid grid = GridFor(config_, fine, from, to);
    OCTAVO_RETURN_IF_ERROR(Entropies(sinogram, turn, grid, {result.center}, &near).status());
    OCTAVO_ASSIGN_OR_RETURN(const Doubles scores, Entropies(sinogram, turn, grid, centers, &near));
    best = static_cast<size_t>(std::min_element(scores.begin(), scores.end()) - scores.begin());
    result.center = centers[best];
    if (best > 0 && best + 1 < scores.size()) {
      const double bend = scores[best - 1] - 2 * scores[best] + scores[best + 1];
      if (bend > 0) result.center += 0.5 * step * (scores[best - 1] - scores[best + 1]) / bend;
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<CenterResult> SearchByEntropy(const CenterRequest& request) {
  return EntropySearch(request).Run();
}

absl::StatusOr<int64_t> EntropyBytes(const CenterConfig& c, Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(const HalfTurn turn, OneHalfTurn(c.angles_rad));
  const auto angles = static_cast<int64_t>(turn.rows.size());
  // The fine search about the middle has the largest images.
  int64_t most = 0;
  for (const int64_t columns : {kCoarseColumns, kFineColumns}) {
    const double middle = 0.5 * static_cast<double>(c.detectors - 1);
    const TrialGrid grid = GridFor(c, BinFor(c, columns), middle, middle);
    const int64_t at_once = TrialsAtOnce(c, grid, angles), size = 2 * grid.radius + 1;
    std::vector<double> centers;
    for (int64_t k = 0; k < at_once; ++k) centers.push_back(static_cast<double>(k));
    OCTAVO_ASSIGN_OR_RETURN(
        const int64_t trial,
        Reconstructor::DeviceBytes(TrialConfig(c, grid, turn.angles_rad, centers), device));
    most = std::max(
        most,
        at_once * (angles * (c.detectors / grid.bin) + size * size) * CenterSearch::kFloat + trial);
  }
  return most;
}

}  // namespace octavo::inline gpu
