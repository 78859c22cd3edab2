#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/formats/stored_volume.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

/// The full resolution of an OME-Zarr that a commit wrote.
class ZarrInput final : public VolumeInput {
 public:
  ZarrInput(VolumeInputInfo info, UniqueFd folder, std::unique_ptr<StoredVolume> volume)
      : VolumeInput(std::move(info)), folder_(std::move(folder)), volume_(std::move(volume)) {
    SetVerify([this] {
      MutexLock lock(mutex_);
      return volume_->Verify();
    });
  }

 private:
  absl::Status ReadInside(const base::ArrayBox& box, char* out) override {
    MutexLock lock(mutex_);
    const int64_t size = info_.type.bytes, ny = info_.axes[1].extent, nz = info_.axes[2].extent,
                  plane = ny * nz * size, row = box.count[2] * size;
    if (box.count[1] == ny && box.count[2] == nz)
      return volume_->Read(box.start[0], box.count[0], out);
    std::vector<char> whole(static_cast<size_t>(plane));
    for (int64_t i = 0; i < box.count[0]; ++i) {
      OCTAVO_RETURN_IF_ERROR(volume_->Read(box.start[0] + i, 1, whole.data()));
      for (int64_t y = 0; y < box.count[1]; ++y, out += row)
        std::memcpy(out, whole.data() + ((box.start[1] + y) * nz + box.start[2]) * size,
                    static_cast<size_t>(row));
    }
    return absl::OkStatus();
  }

  const UniqueFd folder_;  // the volume is read through it
  Mutex mutex_;
  const std::unique_ptr<StoredVolume> volume_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace

OpenedVolume OpenZarrInput(OpenedInput input, const VolumeInputOptions& options) {
  (void)options;
  // Through the folder that is open: its name may be another's by now. A commit has no links in it.
  OCTAVO_ASSIGN_OR_RETURN(auto volume, OpenStoredZarr(NameOfOpen(input.fd)));
  const VolumeMeta meta = volume->meta();
  VolumeInputInfo info{.format = InputFormat::kZarr,
                       .kind = "OME-Zarr 0.5 of a commit",
                       .type = ElementTypeOf(meta.dtype),
                       .file_order = {0, 1, 2},
                       .chunk = {1, 1, 1}};
  for (const int64_t extent : meta.shape) info.axes.push_back({.extent = extent});
  OCTAVO_RETURN_IF_ERROR(AdoptMeta(input.name, meta, {0, 1, 2}, &info));
  info.read_memory_bytes = 256 * meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype);
  return std::make_unique<ZarrInput>(std::move(info), std::move(input.fd), std::move(volume));
}

}  // namespace octavo::storage
