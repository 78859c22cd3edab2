#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"
#include "server/processing/record_choice.h"

namespace octavo::processing {

/// Computes single A-scans and corrected spectra of a scan on the host, with the host's chain: on
/// the host backend the A-scan is that of the volume, bit for bit; CUDA's differs by its rounding.
/// One thread; it waits for the host.
class SingleAscan {
 public:
  /// `choice` must outlive this object.
  explicit SingleAscan(const RecordChoice& choice) : choice_(choice) {}

  /// The A-scan of the unit, [D] of the chain's output, as stored in the volume. `records`: those
  /// from unit.need_first to unit.need_end.
  absl::StatusOr<std::vector<uint8_t>> Ascan(const RecordUnit& unit, const uint8_t* records);
  /// unit.record as the transform gets it (gpu/spectral/spectral_record.h), [N].
  std::vector<float> Corrected(const RecordUnit& unit, const uint8_t* records) const;

 private:
  absl::Status Prepare(int64_t records);
  std::vector<float> BackgroundOf(const RecordUnit& unit, int64_t record,
                                  const uint8_t* records) const;

  const RecordChoice& choice_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<SpectralProcessor> processor_;  // after `device_`, which it uses
  Stream stream_;
  int64_t most_records_ = 0;  // of a call of the processor
};

}  // namespace octavo::processing
