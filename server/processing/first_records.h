#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/spectral/spectral.h"

// Checks the background of a scan with its first records: subtracting a mean of records removes
// everything that they have in common, also a sample.
namespace octavo::processing {

/// Samples [S] of the chosen channel of a record of the chain (the mean of its raw records) as
/// numbers.
std::vector<double> SamplesOf(const SpectralConfig& chain, const uint8_t* record);

/// Keeps some of the records of the first background group (without one: of the first records) of a
/// scan.
class FirstRecords {
 public:
  explicit FirstRecords(const SpectralConfig& chain);

  /// Examines records of the scan, counted from its start. Allocates nothing.
  void Take(const uint8_t* raw, int64_t first_record, int64_t records);
  /// A warning if the background removes all of the sample; else empty. Takes milliseconds.
  std::string Doubt() const;

 private:
  static constexpr int64_t kMost = 16;  // kept, evenly spread over the group
  // Longer records are not examined, so that memory and time stay negligible.
  static constexpr int64_t kMostBytes = int64_t{4} << 20, kMostSamples = 16'384;
  bool AreAllZero() const;
  bool AreAllEqual() const;
  std::string DoubtFringes() const;

  const SpectralConfig chain_;
  const int64_t record_bytes_;
  int64_t group_ = 0, stride_ = 1;
  int64_t next_ = 0, kept_ = 0;
  std::vector<uint8_t> records_;
};

}  // namespace octavo::processing
