#include "server/projection/input_slices.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/buffer/array_input.h"
#include "server/memory/volume_slot.h"

namespace octavo::projection {
namespace {

constexpr const char* kField = "projection.input";
constexpr int64_t kPieceBytes = int64_t{64} << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const InputSlices>> InputSlices::Open(
    const std::string& name, const job::JobEnvironment& environment) {
  auto input = std::make_shared<InputSlices>();
  if (absl::StartsWith(name, "volumes/") && environment.volumes != nullptr) {
    if (auto status = environment.volumes->Get(name); status.ok())
      input->volume_ = *std::move(status);
    // A volume that is in another tier, or striped over devices, is read as a buffer is.
    auto pinned = environment.volumes->Hold(name, volume::HoldKind::kDevice);
    if (pinned.ok()) input->pinned_ = *std::move(pinned);
  }
  if (input->pinned_.slot != nullptr) {
    const model::VolumeStatus& status = input->pinned_.status;
    input->shape_.assign(status.shape, status.shape + 3);
    if (status.dtype != DType::kF32) {
      return FieldNotAllowed(
          kField,
          absl::StrCat(Info(status.dtype).name, " [", absl::StrJoin(input->shape_, ", "), "]"),
          "is f32 with three axes");
    }
    return input;
  }
  if (environment.buffers == nullptr)
    return InvalidField(kField, absl::StrCat("is ", name, ", but this engine has no arrays"));
  OCTAVO_ASSIGN_OR_RETURN(input->contents_,
                          buffer::ArrayInput::OpenFloats(*environment.buffers, kField, name));
  input->shape_ = input->contents_->type().dims;
  return input;
}

DeviceSpan<const float> InputSlices::MemoryOn(int index) const {
  if (pinned_.slot == nullptr || pinned_.device != index) return nullptr;
  return pinned_.slot->volume.span<float>();
}

absl::Status InputSlices::Read(job::JobRun& run, const std::stop_token& stop, int64_t first,
                               int64_t count, DeviceSpan<float> out) const {
  if (contents_ == nullptr) return absl::InternalError("the input is not read through host memory");
  const int64_t total = count * shape_[1] * shape_[2] * 4;
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host,
                          run.device().AllocatePinned(std::min(kPieceBytes, total)));
  int64_t filled = 0, uploaded = 0;
  const auto upload = [&]() -> absl::Status {
    if (stop.stop_requested()) return absl::CancelledError("cancelled");
    const absl::Status copied = run.device().CopyToDevice(
        run.stream(), reinterpret_cast<char*>(out.data()) + uploaded, host.data(), filled);
    OCTAVO_RETURN_IF_ERROR(run.stream().Synchronize());
    OCTAVO_RETURN_IF_ERROR(copied);
    uploaded += std::exchange(filled, 0);
    return absl::OkStatus();
  };
  return contents_->Read({first, 0, 0}, {count, shape_[1], shape_[2]},
                         [&](const char* data, int64_t bytes) -> absl::Status {
                           while (bytes > 0) {
                             const int64_t part = std::min(bytes, host.bytes() - filled);
                             std::memcpy(static_cast<char*>(host.data()) + filled, data,
                                         static_cast<size_t>(part));
                             data += part;
                             bytes -= part;
                             filled += part;
                             if (filled == host.bytes() || uploaded + filled == total)
                               OCTAVO_RETURN_IF_ERROR(upload());
                           }
                           return absl::OkStatus();
                         });
}

}  // namespace octavo::projection
