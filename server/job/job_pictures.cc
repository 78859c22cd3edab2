#include "server/job/job_pictures.h"

#include <algorithm>
#include <optional>

#include "gpu/base/status.h"
#include "server/publish/plane_frame.h"

namespace octavo::job {
namespace {

constexpr int64_t kPreviewNs = 100'000'000;

}  // namespace

double JobPictures::PreviewDueIn() const {
  const int64_t age = services_.clock->Now().monotonic_ns - preview_ns_;
  if (preview_ns_ != 0 && age < kPreviewNs) return static_cast<double>(kPreviewNs - age) * 1e-9;
  const auto wanted = Wanted();
  const bool looked_at =
      std::any_of(wanted.begin(), wanted.end(), [](const auto& w) { return w.previews; });
  return looked_at ? 0 : static_cast<double>(kPreviewNs) * 1e-9;
}

absl::Status JobPictures::Publish(const JobRun::Plane& plane) {
  const int64_t bytes = plane.rows * plane.columns * SizeOf(plane.dtype);
  preview_ns_ = services_.clock->Now().monotonic_ns;
  const auto memory =
      services_.devices.frames(device_index_)->Get(bytes, memory::FramePool::Use::kFrame);
  if (!memory.ok()) {
    services_.publisher->Lost(name_, plane.key);
    return absl::OkStatus();
  }
  OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream_, memory->get(), plane.data, bytes));
  OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
  model::Frame frame;
  frame.parent = name_;
  frame.product = plane.key.product;
  frame.axis = plane.key.axis;
  frame.acquired = services_.clock->Now();
  frame.shape = {plane.rows, plane.columns};
  frame.axes = {plane.row_axis, plane.column_axis};
  frame.spacing_um = {plane.row_spacing_um, plane.column_spacing_um};
  frame.row_spacing_assumed = frame.column_spacing_assumed = plane.spacing_assumed;
  frame.dtype = plane.dtype;
  frame.display_lo = plane.display_lo;
  frame.display_hi = plane.display_hi;
  frame.complete = false;
  frame.payload = {.owner = *memory, .data = memory->get(), .size = bytes};
  services_.publisher->Publish(plane.key, std::move(frame));
  return absl::OkStatus();
}

void JobPictures::PublishCuts(const model::VolumeStatus& volume, const memory::VolumeSlot& slot) {
  std::vector<publish::TopicKey> keys;
  if (slot.mip) keys.push_back({.product = model::Product::kMip});
  for (const auto& wanted : Wanted()) {
    if (wanted.key.product == model::Product::kBscan && slot.volume) keys.push_back(wanted.key);
  }
  for (const publish::TopicKey& key : keys) {
    const bool mip = key.product == model::Product::kMip;
    std::optional<model::Frame> frame = publish::PlaneFrame(name_, volume, key);
    if (!frame.has_value()) continue;
    const int64_t bytes = publish::BytesOf(*frame);
    const auto memory =
        services_.devices.frames(device_index_)->Get(bytes, memory::FramePool::Use::kFrame);
    absl::Status status = memory.status();
    if (status.ok() && mip)
      status = device_.CopyToHost(stream_, memory->get(), slot.mip.data(), bytes);
    if (status.ok() && !mip) {
      status = device_.CopyBoxToHost(stream_, memory->get(), slot.volume.data(), volume.shape,
                                     SizeOf(volume.dtype), publish::PlaneBox(volume, *frame));
    }
    if (status.ok()) status = stream_.Synchronize();
    if (!status.ok()) {
      services_.publisher->Lost(name_, key);
      continue;
    }
    frame->payload = {.owner = *memory, .data = memory->get(), .size = bytes};
    services_.publisher->Publish(key, *std::move(frame));
  }
}

}  // namespace octavo::job
