#pragma once

#include <cstdint>
#include <vector>

#include "gpu/spectral/spectral.h"

// Single records on the calling thread, for people who align an instrument: the steps before the
// transform, with the numbers and the order of operations of the host's chain. No device and no
// plan.
namespace octavo::inline gpu {

/// Sample `i` of a raw record (all channels, interleaved) at `record` as a number.
double RawSampleAt(const SpectralConfig& config, const uint8_t* record, int64_t i);

/// Samples [S] of the processed channel of a record of the chain: the mean of its raw records, less
/// `background` ([S]; empty: nothing is subtracted).
std::vector<float> LoadRecord(const SpectralConfig& config, const uint8_t* record,
                              const std::vector<float>& background);

/// Samples [N] of LoadRecord as the transform gets them: k-linearised, times the window. The phase
/// of the dispersion, which changes no magnitude, and the factor 1/F are left out.
std::vector<float> CorrectRecord(const SpectralConfig& config, const std::vector<float>& samples);

/// The mean of records of the chain, as kRolling and kBscan make it: records with a sample that is
/// not finite do not count.
class RecordMean {
 public:
  explicit RecordMean(const SpectralConfig& config);
  void Add(const uint8_t* record);
  /// [S]; 0 if no record counts.
  std::vector<float> Mean() const;

 private:
  const SpectralConfig& config_;
  std::vector<double> sum_;
  std::vector<double> row_;  // of one record
  double count_ = 0;
};

}  // namespace octavo::inline gpu
