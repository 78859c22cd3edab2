#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "server/derive/derivation_plan.h"
#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/model/work_progress.h"
#include "server/processing/replay_records.h"
#include "server/volume/volume_hold.h"

namespace octavo::derive {

/// A client cancelled it (CANCELLED).
absl::Status DerivationCancelled();

/// Computes the result of a plan on a device. All steps run on one stream; the arrays between them
/// live as long as this object. Use it once, on one thread.
class DerivationRun {
 public:
  /// `plan` and `source`, whose volume lies on `device`, must outlive this object.
  static absl::StatusOr<std::unique_ptr<DerivationRun>> Create(const DerivationPlan& plan,
                                                               const volume::VolumeHold& source,
                                                               Device& device);

  /// Waits for the result, in the memory `out`. Sets the numbers of clipped voxels in `result` if
  /// the plan's last step counts them. Cancelled after a step, or a block of a reprocessing, at
  /// which a stop was requested.
  absl::Status Run(void* out, model::VolumeStatus* result, const model::WorkControl& control = {});

 private:
  DerivationRun(const DerivationPlan& plan, const volume::VolumeHold& source, Device& device)
      : plan_(plan), source_(source), device_(device) {}
  absl::StatusOr<const void*> Upload(const void* data, size_t bytes);
  absl::Status RunStep(const DerivationStep& step, const void* in, void* out,
                       const model::WorkControl& control);
  absl::Status Reprocess(const DerivationStep& step, void* out, const model::WorkControl& control);
  absl::Status OperateOnArray(const DerivationStep& step, const void* in, void* out);
  absl::Status Resample(const DerivationStep& step, const void* in, void* out);
  /// Angiograms and phases.
  absl::Status Compare(const DerivationStep& step, const void* in, DeviceSpan<float> out);

  const DerivationPlan& plan_;
  const volume::VolumeHold& source_;
  Device& device_;
  std::vector<DeviceBuffer> buffers_;  // before the stream: freed after its work is done
  std::unique_ptr<processing::Reprocessor> reprocessor_;
  std::vector<std::unique_ptr<ChainRun>> runs_;
  Stream stream_;
};

/// The digest of the first `bytes` bytes of a slot's volume, in words ("sum64:..."); it stays in
/// the slot, too. Waits for the device.
absl::StatusOr<std::string> DigestOf(Device& device, const memory::VolumeSlot& slot, int64_t bytes);

}  // namespace octavo::derive
