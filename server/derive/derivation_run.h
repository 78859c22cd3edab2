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

namespace octavo::derive {

/// A client cancelled it (CANCELLED).
absl::Status DerivationCancelled();

/// Computes the result of a plan on a device. All steps run on one stream; the arrays between them
/// live as long as this object. Use it once, on one thread.
class DerivationRun {
 public:
  /// `plan` must outlive this object.
  static absl::StatusOr<std::unique_ptr<DerivationRun>> Create(const DerivationPlan& plan,
                                                               Device& device);

  /// Makes the result, in the memory `out`, of the source's voxels `in`, both on the device; waits
  /// for it. Nothing may still write to `in`. Cancelled after a step at which a stop was requested.
  absl::Status Run(const void* in, void* out, const model::WorkControl& control = {});

 private:
  DerivationRun(const DerivationPlan& plan, Device& device) : plan_(plan), device_(device) {}
  absl::StatusOr<const void*> Upload(const void* data, size_t bytes);
  absl::Status RunStep(const DerivationStep& step, const void* in, void* out);
  absl::Status OperateOnArray(const DerivationStep& step, const void* in, void* out);
  absl::Status Resample(const DerivationStep& step, const void* in, void* out);
  /// Angiograms and phases.
  absl::Status Compare(const DerivationStep& step, const void* in, DeviceSpan<float> out);

  const DerivationPlan& plan_;
  Device& device_;
  std::vector<DeviceBuffer> buffers_;  // before the stream: freed after its work is done
  std::vector<std::unique_ptr<ChainRun>> runs_;
  Stream stream_;
};

/// The digest of the first `bytes` bytes of a slot's volume, in words ("sum64:..."); it stays in
/// the slot, too. Waits for the device.
absl::StatusOr<std::string> DigestOf(Device& device, const memory::VolumeSlot& slot, int64_t bytes);

}  // namespace octavo::derive
