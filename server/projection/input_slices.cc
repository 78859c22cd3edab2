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
#include "server/memory/device_set.h"
#include "server/memory/volume_slot.h"

namespace octavo::projection {
namespace {

constexpr const char* kField = "projection.input";
constexpr int64_t kPieceBytes = int64_t{64} << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const InputSlices>> InputSlices::Open(
    const std::string& name, const job::JobEnvironment& environment) {
  auto input = std::make_shared<InputSlices>();
  input->devices_ = environment.devices;
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

int InputSlices::device() const {
  const bool any = pinned_.slot == nullptr ||
                   (devices_ != nullptr && devices_->names().IsForJobs(pinned_.device));
  return any ? -1 : pinned_.device;
}

DeviceSpan<const float> InputSlices::MemoryOn(int index) const {
  if (pinned_.slot == nullptr || pinned_.device != index) return nullptr;
  return pinned_.slot->volume.span<float>();
}

absl::Status InputSlices::Read(job::JobRun& run, const std::stop_token& stop, int64_t first,
                               int64_t count, DeviceSpan<float> out) const {
  if (contents_ == nullptr) return ReadPinned(run, stop, first, count, out);
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

absl::Status InputSlices::ReadPinned(job::JobRun& run, const std::stop_token& stop, int64_t first,
                                     int64_t count, DeviceSpan<float> out) const {
  if (devices_ == nullptr || pinned_.slot == nullptr)
    return absl::InternalError("the input is on a device that the job does not know");
  Device& from = devices_->device(pinned_.device);
  Device& to = run.device();
  const int64_t slice = shape_[1] * shape_[2], total = count * slice * 4;
  const char* const source =
      reinterpret_cast<const char*>(pinned_.slot->volume.span<float>().data() + first * slice);
  // Page-locked for the GPU, if one of the two is the host.
  OCTAVO_ASSIGN_OR_RETURN(
      const PinnedBuffer host,
      (from.info().backend == "host" ? to : from).AllocatePinned(std::min(kPieceBytes, total)));
  OCTAVO_ASSIGN_OR_RETURN(const Stream stream, from.NewStream(StreamPriority::kLow));
  for (int64_t at = 0; at < total; at += host.bytes()) {
    if (stop.stop_requested()) return absl::CancelledError("cancelled");
    const int64_t bytes = std::min(host.bytes(), total - at);
    const absl::Status fetched = from.CopyToHost(stream.ref(), host.data(), source + at, bytes);
    OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
    OCTAVO_RETURN_IF_ERROR(fetched);
    const absl::Status copied =
        to.CopyToDevice(run.stream(), reinterpret_cast<char*>(out.data()) + at, host.data(), bytes);
    OCTAVO_RETURN_IF_ERROR(run.stream().Synchronize());
    OCTAVO_RETURN_IF_ERROR(copied);
  }
  return absl::OkStatus();
}

}  // namespace octavo::projection
