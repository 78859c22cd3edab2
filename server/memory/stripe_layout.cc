#include "server/memory/stripe_layout.h"

#include <algorithm>

#include "gpu/base/status.h"

namespace octavo::memory {

int64_t StripeRule::RowsOf(int64_t device, int64_t rows) const {
  const int64_t round = bscans * devices, rest = rows % round;
  return rows / round * bscans + std::clamp<int64_t>(rest - device * bscans, 0, bscans);
}

StripeRule StripesOf(const model::VolumeStatus& volume, const VolumeSlot& slot) {
  if (slot.stripes.empty()) return {.bscans = std::max<int64_t>(1, volume.shape[0]), .devices = 1};
  return {.bscans = slot.stripe_bscans, .devices = std::ssize(slot.stripes)};
}

namespace {

const uint8_t* PartOf(const VolumeSlot& slot, int64_t device) {
  return slot.stripes.empty() ? slot.volume.as<uint8_t>()
                              : slot.stripes[static_cast<size_t>(device)].volume.as<uint8_t>();
}

}  // namespace

// A stream of the home device copies from all of them: the driver knows where memory lies.
absl::Status CopyVolumeBytes(Device& device, StreamRef stream, void* dst, const VolumeSlot& slot,
                             const model::VolumeStatus& volume, int64_t at, int64_t bytes) {
  if (slot.stripes.empty())
    return device.CopyToHost(stream, dst, slot.volume.as<uint8_t>() + at, bytes);
  const StripeRule rule = StripesOf(volume, slot);
  const int64_t bscan = volume.shape[1] * volume.shape[2] * SizeOf(volume.dtype);
  auto* to = static_cast<uint8_t*>(dst);
  for (const int64_t end = at + bytes; at < end;) {
    const int64_t y = at / bscan, count = std::min(end, rule.RunEnd(y) * bscan) - at;
    const uint8_t* from = PartOf(slot, rule.DeviceOf(y)) + rule.LocalOf(y) * bscan + at % bscan;
    OCTAVO_RETURN_IF_ERROR(device.CopyToHost(stream, to, from, count));
    to += count;
    at += count;
  }
  return absl::OkStatus();
}

absl::Status CopyVolumeBox(Device& device, StreamRef stream, void* dst, const VolumeSlot& slot,
                           const model::VolumeStatus& volume, const Box3& box) {
  const int64_t element = SizeOf(volume.dtype);
  if (slot.stripes.empty())
    return device.CopyBoxToHost(stream, dst, slot.volume.data(), volume.shape, element, box);
  const StripeRule rule = StripesOf(volume, slot);
  auto* to = static_cast<uint8_t*>(dst);
  const int64_t end = box.start[0] + box.count[0];
  for (int64_t y = box.start[0]; y < end;) {
    const int64_t lane = rule.DeviceOf(y), rows = std::min(end, rule.RunEnd(y)) - y;
    const int64_t shape[3] = {rule.RowsOf(lane, volume.shape[0]), volume.shape[1], volume.shape[2]};
    const Box3 part{.start = {rule.LocalOf(y), box.start[1], box.start[2]},
                    .count = {rows, box.count[1], box.count[2]}};
    OCTAVO_RETURN_IF_ERROR(
        device.CopyBoxToHost(stream, to, PartOf(slot, lane), shape, element, part));
    to += rows * box.count[1] * box.count[2] * element;
    y += rows;
  }
  return absl::OkStatus();
}

}  // namespace octavo::memory
