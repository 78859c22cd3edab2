#include "server/volume_import/volume_filler.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"
#include "server/volume_import/display_range.h"

namespace octavo::volume_import {
namespace {

constexpr int64_t kPieceBytes = 16 << 20;

int64_t PlaneBytes(const storage::VolumeMeta& meta) {
  return meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype);
}
int64_t PlanesOfPiece(const storage::VolumeMeta& meta) {
  return std::clamp<int64_t>(kPieceBytes / PlaneBytes(meta), 1, meta.shape[0]);
}
int SlabsOf(const storage::VolumeMeta& meta) { return PlanesOfPiece(meta) < meta.shape[0] ? 2 : 1; }

}  // namespace

int64_t VolumeFiller::HostBytes(const storage::VolumeMeta& meta) {
  return SlabsOf(meta) * PlanesOfPiece(meta) * PlaneBytes(meta);
}

absl::StatusOr<std::unique_ptr<VolumeFiller>> VolumeFiller::Create(
    Device& device, const storage::VolumeMeta& meta) {
  std::unique_ptr<VolumeFiller> self(new VolumeFiller(device, meta));
  for (int i = 0; i < SlabsOf(meta); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(self->slabs_[i].memory,
                            device.AllocatePinned(self->piece_ * self->plane_bytes_));
    OCTAVO_ASSIGN_OR_RETURN(self->slabs_[i].copied, device.NewEvent());
  }
  return self;
}

VolumeFiller::VolumeFiller(Device& device, const storage::VolumeMeta& meta)
    : device_(device),
      dtype_(meta.dtype),
      planes_(meta.shape[0]),
      plane_bytes_(PlaneBytes(meta)),
      piece_(PlanesOfPiece(meta)) {}

absl::Status VolumeFiller::Fill(storage::StoredVolume& volume, StreamRef stream, void* out,
                                const std::function<absl::Status(int64_t done)>& on_planes) {
  absl::Status passed;
  const absl::Status filled = [&] {
    // The slabs may be freed only when the copies have passed, by an exception, too.
    const absl::Cleanup wait = [&] { passed = stream.Synchronize(); };
    return Pieces(volume, stream, static_cast<char*>(out), on_planes);
  }();
  OCTAVO_RETURN_IF_ERROR(filled);
  OCTAVO_RETURN_IF_ERROR(passed);
  return on_planes(planes_);
}

absl::Status VolumeFiller::Pieces(storage::StoredVolume& volume, StreamRef stream, char* out,
                                  const std::function<absl::Status(int64_t done)>& on_planes) {
  const int64_t middle = planes_ / 2;
  int turn = 0;
  for (int64_t first = 0; first < planes_; first += piece_) {
    OCTAVO_RETURN_IF_ERROR(on_planes(first));
    const int64_t count = std::min(piece_, planes_ - first);
    Slab& slab = slabs_[turn];
    turn = slabs_[1].memory ? 1 - turn : 0;
    OCTAVO_RETURN_IF_ERROR(slab.copied.Synchronize());
    if (const int error = Failpoint("import_piece"))
      return storage::ErrnoStatus(error, "reading", "a piece of the volume");
    OCTAVO_RETURN_IF_ERROR(volume.Read(first, count, slab.memory.data()));
    if (middle >= first && middle < first + count) {
      display_ = FindDisplayRange(
          static_cast<const char*>(slab.memory.data()) + (middle - first) * plane_bytes_,
          plane_bytes_ / SizeOf(dtype_), dtype_);
    }
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(stream, out + first * plane_bytes_,
                                                slab.memory.data(), count * plane_bytes_));
    OCTAVO_RETURN_IF_ERROR(slab.copied.Record(stream));
  }
  return absl::OkStatus();
}

}  // namespace octavo::volume_import
