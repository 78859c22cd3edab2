#pragma once

// Private to tomo_center*.cc.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/status.h"
#include "gpu/buffer.h"
#include "gpu/tomo_center.h"
#include "gpu/tomo_prepare_ops.h"
#include "gpu/tomography.h"

namespace octavo {

struct ProjectionPair {
  int64_t first = 0, second = 0;
  double off = 0;  // from half a turn, rad
};
/// The projections nearest to half a turn apart.
ProjectionPair OppositePair(const std::vector<double>& angles);
/// What of the search lies on the detector, as centres.
std::pair<double, double> CenterSearchRange(const CenterConfig& c);

/// What is done once per sinogram runs on the calling thread, in double precision; what is done once per trial runs on the device.
class CenterFinder {
 public:
  using Doubles = std::vector<double>;
  static constexpr int64_t kFloat = sizeof(float), kBins = 64;

  CenterFinder(StreamRef stream, const CenterConfig& config, Device& device) : stream_(stream), config_(config), device_(device) {}

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

  absl::StatusOr<CenterResult> Run(const CenterInput& input);

 private:
  static constexpr int64_t kWorkBytes = int64_t{512} << 20, kTrialSlices = 8;

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
  static absl::Status NotFinite();
  /// Mean over the slices, [angle, detector].
  absl::StatusOr<Doubles> MeanSinogram(const CenterInput& input);

  absl::StatusOr<CenterResult> Vo(const Doubles& sinogram);  // tomo_center_vo.cc
  /// Mean outside of the double wedge for the shifts first + k · step.
  absl::StatusOr<Doubles> WedgeScores(const Doubles& sinogram, int64_t columns, bool whole, double first, double step, int64_t count);
  absl::StatusOr<CenterResult> Entropy(const Doubles& sinogram);            // tomo_center_entropy.cc
  absl::StatusOr<CenterResult> PhaseCorrelation(const CenterInput& input);  // tomo_center_phase.cc

  /// Cancelled if the search is to be given up.
  absl::Status GoOn() { return Ask(stream_, goes_on_); }

  const StreamRef stream_;
  const CenterConfig& config_;
  Device& device_;
  GoesOn goes_on_;  // the input's
};

}  // namespace octavo
