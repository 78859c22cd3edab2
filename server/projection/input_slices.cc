#include "server/projection/input_slices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/buffer/float_planes.h"
#include "server/memory/volume_slot.h"

namespace octavo::projection {
namespace {

constexpr const char* kField = "projection.input";
constexpr int64_t kPieceBytes = int64_t{64} << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const InputSlices>> InputSlices::Open(
    const std::string& name, const job::JobEnvironment& environment) {
  auto input = std::make_shared<InputSlices>();
  input->name_ = name;
  input->buffers_ = environment.buffers;
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
  OCTAVO_ASSIGN_OR_RETURN(input->shape_, buffer::ShapeOfFloats(*environment.buffers, kField, name));
  return input;
}

DeviceSpan<const float> InputSlices::MemoryOn(int index) const {
  if (pinned_.slot == nullptr || pinned_.device != index) return nullptr;
  return pinned_.slot->volume.span<float>();
}

absl::Status InputSlices::Read(job::JobRun& run, const std::stop_token& stop, int64_t first,
                               int64_t count, DeviceSpan<float> out) const {
  if (buffers_ == nullptr) return absl::InternalError("this engine has no arrays");
  const int64_t slice = shape_[1] * shape_[2], bytes = slice * 4;
  const int64_t piece = std::clamp<int64_t>(kPieceBytes / std::max<int64_t>(bytes, 1), 1, count);
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run.device().AllocatePinned(piece * bytes));
  for (int64_t done = 0; done < count; done += piece) {
    if (stop.stop_requested()) return absl::CancelledError("cancelled");
    const int64_t part = std::min(piece, count - done);
    OCTAVO_RETURN_IF_ERROR(
        buffer::ReadPlanes(*buffers_, name_, first + done, part, shape_, host.data()));
    const absl::Status copied = run.device().CopyToDevice(
        run.stream(), out.From(done * slice).data(), host.data(), part * bytes);
    OCTAVO_RETURN_IF_ERROR(run.stream().Synchronize());
    OCTAVO_RETURN_IF_ERROR(copied);
  }
  return absl::OkStatus();
}

}  // namespace octavo::projection
