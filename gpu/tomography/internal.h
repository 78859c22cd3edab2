#pragma once

// Private to center*.cc.

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/status.h"
#include "gpu/device/buffer.h"
#include "gpu/tomography/center.h"
#include "gpu/tomography/directions.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct.h"

namespace octavo::inline gpu {

/// What of the search lies on the detector, as centres.
std::pair<double, double> CenterSearchRange(const CenterConfig& c);

/// What is done once per sinogram runs on the calling thread, in double precision; what is done
/// once per trial runs on the device.
class CenterFinder {
 public:
  using Doubles = std::vector<double>;
  static constexpr int64_t kFloat = sizeof(float);

  CenterFinder(StreamRef stream, const CenterConfig& config, Device& device)
      : stream_(stream), config_(config), device_(device) {}

  /// Of the images of trials: so many columns of the detector in one, so many pixels about the
  /// axis.
  struct TrialGrid {
    int64_t bin = 1, radius = 0;
  };
  static constexpr int64_t kCoarseColumns = 160, kFineColumns = 400;
  static int64_t BinFor(const CenterConfig& c, int64_t columns);
  static TrialGrid GridFor(const CenterConfig& c, int64_t bin, double least, double most);
  static TomographyConfig TrialConfig(const CenterConfig& c, const TrialGrid& grid,
                                      const std::vector<double>& angles_rad,
                                      std::vector<double> centers);
  static int64_t TrialsAtOnce(const CenterConfig& c, const TrialGrid& grid, int64_t rows);
  static int64_t JoinsAtOnce(int64_t angles, int64_t detectors) {
    return std::clamp<int64_t>(kWorkBytes / (2 * JoinedBytes(angles, detectors)), 1, 32);
  }
  static int64_t JoinedBytes(int64_t angles, int64_t detectors) {
    return 2 * angles * detectors * static_cast<int64_t>(sizeof(ComplexF));
  }

  /// Pairs of opposite looks that are taken from each slice, and the length that their rows are
  /// transformed with.
  static int64_t PairsOf(int64_t slices);
  static int64_t PairLength(int64_t detectors);

  absl::StatusOr<CenterResult> Run(const CenterInput& input);

 private:
  static constexpr int64_t kPairs = 512;
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

  absl::StatusOr<CenterResult> Vo(const Doubles& sinogram);  // center_vo.cc
  /// Mean outside of the double wedge for the shifts first + k · step.
  absl::StatusOr<Doubles> WedgeScores(const Doubles& sinogram, int64_t columns, bool whole,
                                      double first, double step, int64_t count);

  struct GreyLevels {
    double low = 0, high = 0;
    bool set() const { return high > low; }
  };
  absl::StatusOr<CenterResult> Entropy(const Doubles& sinogram);  // center_entropy.cc
  /// Of the images about each of the centres, in bits; the grey levels are those of the first image
  /// unless they are given.
  absl::StatusOr<Doubles> Entropies(const Doubles& sinogram, const HalfTurn& turn,
                                    const TrialGrid& grid, const Doubles& centers,
                                    GreyLevels* levels);

  /// Some projections of a slice.
  struct SliceRows {
    std::map<int64_t, int64_t> place;  // of a projection within `values`
    Doubles values;
    Doubles Sum(const WeightedRows& rows, int64_t columns) const;
  };
  absl::StatusOr<CenterResult> Pairs(const CenterInput& input);  // center_pairs.cc
  struct PairScores {
    Doubles likelihoods;  // logarithms
    Doubles cautious;     // the same where small differences are no evidence
  };
  /// Of an axis at 0, ½, 1 … detectors − 1.
  absl::StatusOr<PairScores> PairLikelihoods(const CenterInput& input,
                                             const std::vector<double>& angles_rad);
  absl::StatusOr<SliceRows> RowsOf(const CenterInput& input, int64_t slice,
                                   const std::vector<const OppositeViews*>& views);
  absl::Status Transform(int64_t length, bool inverse, std::vector<ComplexF>* rows);
  absl::StatusOr<CenterResult> PhaseCorrelation(const CenterInput& input);  // center_phase.cc

  /// Cancelled if the search is to be given up.
  absl::Status GoOn() { return CheckCancelled(stream_, goes_on_); }

  const StreamRef stream_;
  const CenterConfig& config_;
  Device& device_;
  CancelCheck goes_on_;  // the input's
};

}  // namespace octavo::inline gpu
