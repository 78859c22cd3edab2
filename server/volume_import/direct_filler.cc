#include "server/volume_import/direct_filler.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "server/volume_import/display_range.h"

namespace octavo::volume_import {

absl::StatusOr<std::unique_ptr<DirectFiller>> DirectFiller::Create(
    const storage::InputVolume& volume, storage::StorageReads* reads) {
  if (reads == nullptr || !reads->enabled()) return std::unique_ptr<DirectFiller>();
  OCTAVO_ASSIGN_OR_RETURN(auto direct, volume.OpenDirect());
  if (!direct.has_value()) return std::unique_ptr<DirectFiller>();
  return std::unique_ptr<DirectFiller>(new DirectFiller(volume, reads, *std::move(direct)));
}

DirectFiller::DirectFiller(const storage::InputVolume& volume, storage::StorageReads* reads,
                           storage::InputVolume::Direct direct)
    : meta_(volume.meta()),
      reads_(*reads),
      direct_(std::move(direct)),
      plane_(meta_.shape[1] * meta_.shape[2]) {}

absl::StatusOr<int64_t> DirectFiller::DeviceBytes(Device& device) const {
  return storage::DeviceReader::DeviceBytes(device, *direct_.source, meta_.shape[0] * plane_);
}

absl::StatusOr<bool> DirectFiller::Fill(const Target& target,
                                        const std::function<absl::Status(int64_t done)>& on_planes,
                                        std::string* words) {
  const int64_t elements = meta_.shape[0] * plane_, size = SizeOf(meta_.dtype);
  OCTAVO_ASSIGN_OR_RETURN(
      const auto choice,
      reads_.ChooseFor(target.path, {.device = target.device,
                                     .lend = target.lend,
                                     .stream = target.stream,
                                     .memory = {static_cast<uint8_t*>(target.out), elements * size},
                                     .go_on = [&] { return on_planes(0); }}));
  storage::DeviceRead read{.device = target.device,
                           .lend = target.lend,
                           .most_lent = target.most_lent,
                           .source = direct_.source.get(),
                           .out_stride = {plane_ * size, meta_.shape[2] * size, size},
                           .out = target.out,
                           .elements = elements,
                           .spec = direct_.spec,
                           .way = choice.way,
                           .cufile = choice.cufile};
  for (int i = 0; i < 3; ++i) read.box_axis[i] = direct_.box_axis[i];
  const auto reader = storage::DeviceReader::Create(read);
  if (absl::IsResourceExhausted(reader.status())) {
    *words = absl::StrCat("read in whole planes: ", reader.status().message());
    return false;
  }
  OCTAVO_RETURN_IF_ERROR(reader.status());
  OCTAVO_RETURN_IF_ERROR((*reader)->Run(target.stream, [&](double done) {
    return on_planes(static_cast<int64_t>(done * static_cast<double>(meta_.shape[0])));
  }));
  *words = absl::StrFormat("read straight to the device: %d MiB by cuFile, %d MiB through the host",
                           (*reader)->cufile_bytes() >> 20, (*reader)->host_bytes() >> 20);
  OCTAVO_RETURN_IF_ERROR(FindDisplay(target));
  OCTAVO_RETURN_IF_ERROR(on_planes(meta_.shape[0]));
  return true;
}

absl::Status DirectFiller::FindDisplay(const Target& target) {
  const int64_t bytes = plane_ * SizeOf(meta_.dtype);
  std::vector<char> plane(static_cast<size_t>(bytes));
  const absl::Status enqueued = target.device->CopyToHost(
      target.stream, plane.data(),
      static_cast<const char*>(target.out) + meta_.shape[0] / 2 * bytes, bytes);
  const absl::Status passed = target.stream.Synchronize();
  OCTAVO_RETURN_IF_ERROR(enqueued);
  OCTAVO_RETURN_IF_ERROR(passed);
  display_ = FindDisplayRange(plane.data(), plane_, meta_.dtype);
  return absl::OkStatus();
}

}  // namespace octavo::volume_import
