#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"
#include "server/model/resolved_scan.h"
#include "server/processing/raw_records.h"
#include "server/volume/volume_store.h"

namespace octavo::processing {

/// The raster rule of a scan's pattern, for those without a plan.
math::RasterPlacement RasterOf(const model::ResolvedScan& scan);
/// B-scans of an even (0) or odd (1) volume in the order of the scan; empty: those of the raster
/// rule.
std::vector<BscanSpan> SpansOf(const pattern::Pattern& pattern, int kind);

/// The error for raw spectra that were recovered after a restart, which cannot be processed again.
absl::Status RawOfAnEarlierProcess(const model::VolumeStatus& volume, const std::string& field);

/// The scan that the held raw spectra `raw` came from, with other processing: shape and dtype of
/// the volume may be others. InvalidArgument if `raw` is no raw volume ("volume"), or names the
/// field of the processing.
absl::StatusOr<model::ResolvedScan> ResolveReprocess(const model::VolumeStatus& raw,
                                                     const model::Processing& processing);

/// The description of the reprocessed volume, without name, state and digest.
model::VolumeStatus DescribeReprocessed(const model::VolumeStatus& raw,
                                        const std::shared_ptr<const model::ResolvedScan>& scan);

/// Runs the spectral chain over held raw spectra as the scan would have: the same records, the same
/// windows of a rolling background, the same places. The result equals the scan's volume bit for
/// bit.
class Reprocessor {
 public:
  /// Device memory that Create allocates; an upper bound.
  static int64_t DeviceBytes(const model::ResolvedScan& scan, Device& device);
  /// Allocates. `scan`: of ResolveReprocess. `raw` is kept pinned.
  static absl::StatusOr<std::unique_ptr<Reprocessor>> Create(const model::ResolvedScan& scan,
                                                             volume::VolumeHold raw, Device& device,
                                                             StreamRef stream);

  struct Output {
    void* volume = nullptr;  // [y, x, z] of the chain's output
    void* mip = nullptr;  // [y, x] of ProjectionOf that: of the slab of the scan's products; null =
                          // not wanted
  };
  /// Enqueues the whole volume, block by block. `on_block` (may be null) is called before each
  /// block with the number of blocks enqueued so far; an error from it ends the run. Missing
  /// A-scans hold the fill value. The reprocessor must live until `stream` has passed.
  absl::Status Run(StreamRef stream, const Output& out,
                   const std::function<absl::Status(int64_t done)>& on_block);
  /// After Run: the numbers of voxels clipped below and above. Waits for `stream`.
  absl::Status ReadClipped(StreamRef stream, model::VolumeStatus* volume);
  int64_t blocks() const;
  std::string Describe() const { return processor_->Describe(); }

 private:
  Reprocessor(const model::ResolvedScan& scan, volume::VolumeHold raw, Device& device)
      : scan_(scan), raw_(std::move(raw)), device_(device) {}
  absl::Status Process(StreamRef stream, int64_t at, int64_t volume, int64_t first, int64_t records,
                       const SpectralTarget& target);
  absl::Status ProcessLead(StreamRef stream);

  const model::ResolvedScan scan_;
  const volume::VolumeHold raw_;
  Device& device_;
  std::unique_ptr<SpectralProcessor> processor_;
  DeviceBuffer placement_, clipped_;
  std::vector<BscanSpan> spans_;
};

}  // namespace octavo::processing
