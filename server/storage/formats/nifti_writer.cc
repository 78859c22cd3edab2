#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

#include "gpu/base/status.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/planes.h"
#include "server/storage/formats/single_file.h"

namespace octavo::storage {
namespace {

// Field by field as in nifti1.h and nifti2_hdr.h; all members lie at their natural places.
struct Nifti1 {
  int32_t sizeof_hdr = 348;
  char unused1[35] = {};
  char dim_info = 0;
  int16_t dim[8] = {3, 1, 1, 1, 1, 1, 1, 1};
  float intent_p[3] = {};
  int16_t intent_code = 0, datatype = 0, bitpix = 0, slice_start = 0;
  float pixdim[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  float vox_offset = 0, scl_slope = 1, scl_inter = 0;
  int16_t slice_end = 0;
  char slice_code = 0, xyzt_units = 2;  // millimetres
  float cal_max = 0, cal_min = 0, slice_duration = 0, toffset = 0;
  int32_t glmax = 0, glmin = 0;
  char descrip[80] = {}, aux_file[24] = {};
  int16_t qform_code = 1, sform_code = 1;
  float quatern[3] = {}, qoffset[3] = {};
  float srow[3][4] = {};
  char intent_name[16] = {};
  char magic[4] = {'n', '+', '1', 0};
};
static_assert(sizeof(Nifti1) == 348);

struct Nifti2 {
  int32_t sizeof_hdr = 540;
  char magic[8] = {'n', '+', '2', 0, '\r', '\n', '\032', '\n'};
  int16_t datatype = 0, bitpix = 0;
  int64_t dim[8] = {3, 1, 1, 1, 1, 1, 1, 1};
  double intent_p[3] = {};
  double pixdim[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t vox_offset = 0;
  double scl_slope = 1, scl_inter = 0, cal_max = 0, cal_min = 0, slice_duration = 0, toffset = 0;
  int64_t slice_start = 0, slice_end = 0;
  char descrip[80] = {}, aux_file[24] = {};
  int32_t qform_code = 1, sform_code = 1;
  double quatern[3] = {}, qoffset[3] = {};
  double srow[3][4] = {};
  int32_t slice_code = 0, xyzt_units = 2, intent_code = 0;
  char intent_name[16] = {};
  char dim_info = 0;
  char unused[15] = {};
};
static_assert(sizeof(Nifti2) == 544 && offsetof(Nifti2, unused) == 525);

int16_t TypeCode(DType dtype) {
  switch (dtype) {
    case DType::kU8: return 2;
    case DType::kI8: return 256;
    case DType::kU16: return 512;
    case DType::kI16: return 4;
    case DType::kF64: return 64;
    case DType::kC64: return 32;
    default: return 16;  // float
  }
}

/// NIfTI-1 or NIfTI-2 in one .nii file. The array is [i, j, k] = [x, y, z] with i fastest, as its
/// readers expect, and the affine is diagonal: so a volume [y, x, z] is transposed while it is
/// written, each plane z growing as slabs of y arrive; a tomogram, [z, y, x], is not transposed.
/// Only a volume whose first axis is x keeps its order, the last axis as i, and the affine maps i,
/// j and k to axes. Lengths are millimetres, which readers that ignore the unit also expect; if one
/// is not known, the file has no unit. The metadata are an extension (code 6, text) between header
/// and voxels. Stored values are not scaled; the levels are in the metadata. Source: nifti1.h,
/// nifti2_hdr.h of https://nifti.nimh.nih.gov
class NiftiWriter final : public StreamedFileWriter {
 public:
  using StreamedFileWriter::StreamedFileWriter;

  absl::Status Start() {
    head_ = options_.nifti_version == 2 ? MakeHead<Nifti2>() : MakeHead<Nifti1>();
    OCTAVO_RETURN_IF_ERROR(Open(static_cast<int64_t>(head_.size()), VolumeBytes()));
    if (order_[0] == 0) return absl::OkStatus();
    return BeginRows(meta_.shape[order_[0]], VolumeBytes() / meta_.shape[order_[0]], "");
  }

  // Of a volume that is transposed a slab gives each plane of the file one run: those of large
  // slabs are long enough for a drive.
  int64_t SlabBscans() const override {
    if (order_[0] == 0) return LeastSlabBscans();
    return BscansOf(std::clamp(VolumeBytes() / 8, kLeastSlab, kMostSlab));
  }
  int64_t LeastSlabBscans() const override {
    return order_[0] == 0 ? SlabWriter::SlabBscans() : BscansOf(kLeastSlab);
  }

 private:
  absl::Status Slab(int64_t, int64_t bscans, const char* data) override {
    const int64_t extents[3] = {bscans, meta_.shape[1], meta_.shape[2]}, size = SizeOf(meta_.dtype);
    if (order_[0] == 0 && order_[1] == 1) return Append(data, bscans * PlaneBytes());
    if (order_[0] == 0) {
      std::vector<char> turned(static_cast<size_t>(bscans * PlaneBytes()));
      tbb::parallel_for(int64_t{0}, bscans, [&](int64_t plane) {
        CopyRows(data, extents, size, order_, plane * meta_.shape[2], meta_.shape[2],
                 turned.data() + plane * PlaneBytes());
      });
      return Append(turned.data(), std::ssize(turned));
    }
    // Several cache lines of each row of the slab at a time, which lie together; work for all.
    const int64_t all = meta_.shape[order_[0]], run = bscans * PlaneBytes() / all,
                  planes = std::clamp<int64_t>(all / (2 * tbb::this_task_arena::max_concurrency()),
                                               32, 128),
                  blocks = (all + planes - 1) / planes;
    std::vector<absl::Status> results(static_cast<size_t>(blocks));
    tbb::parallel_for(int64_t{0}, blocks, [&](int64_t block) {
      const int64_t first = block * planes, count = std::min(planes, all - first);
      results[static_cast<size_t>(block)] =
          AppendToRows(first, count, run, [&](char* const* places) {
            CopyPlanes(data, extents, size, order_, first, count, places);
          });
    });
    for (const auto& result : results) OCTAVO_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Head() override {
    if (order_[0] != 0) OCTAVO_RETURN_IF_ERROR(EndRows());
    return head_;
  }

  template <class Header>
  std::string MakeHead() const {
    Header header;
    constexpr size_t kHeaderBytes = sizeof(Nifti1) == sizeof(Header) ? 348 : 540;
    // All axes share one unit. A known length is always in millimetres, an assumed one in voxels.
    if (!SpacingIsKnown(meta_)) header.xyzt_units = 0;
    for (int i = 0; i < 3; ++i) {
      const int axis = order_[static_cast<size_t>(2 - i)], along = meta_.axes[axis][0] - 'x';
      header.dim[i + 1] =
          static_cast<std::remove_reference_t<decltype(header.dim[0])>>(meta_.shape[axis]);
      header.pixdim[i + 1] = static_cast<std::remove_reference_t<decltype(header.pixdim[0])>>(
          meta_.spacing_um[axis] * (meta_.spacing_assumed[axis] ? 1 : 1e-3));
      header.srow[along][i] = header.pixdim[i + 1];
    }
    if (meta_.axes[0] == "x")
      header.qform_code = 0;  // a quaternion rotates but cannot exchange axes
    header.datatype = TypeCode(meta_.dtype);
    header.bitpix = static_cast<int16_t>(8 * SizeOf(meta_.dtype));
    using Real = decltype(header.cal_max);
    header.cal_min = static_cast<Real>(meta_.display_lo);
    header.cal_max = static_cast<Real>(meta_.display_hi);
    const std::string& name = meta_.title.empty() ? meta_.volume_name : meta_.title;
    size_t length = std::min(name.size(), sizeof header.descrip - 1);
    while (length > 0 && length < name.size() && (name[length] & 0xC0) == 0x80)
      --length;  // does not cut a UTF-8 character
    std::memcpy(header.descrip, name.data(), length);
    // The extension: its own size and code, text, zeros up to a multiple of 16. It begins after the
    // header and 4 flags.
    std::string extension = MetaText(meta_);
    extension.append(16 - (extension.size() + 8) % 16, '\0');
    const size_t offset = kHeaderBytes + 4 + 8 + extension.size();
    header.vox_offset = static_cast<decltype(header.vox_offset)>(
        offset);  // a float holds every such number below 2^28
    std::string out(reinterpret_cast<const char*>(&header), kHeaderBytes);
    out += std::string("\1\0\0\0", 4);
    Put(&out, static_cast<int32_t>(8 + extension.size()));
    Put(&out, int32_t{6});
    return out + extension;
  }

  static constexpr int64_t kLeastSlab = 32 << 20, kMostSlab = 128 << 20;  // bytes

  const PlaneOrder order_ =
      meta_.axes[0] == "x" ? PlaneOrder{0, 1, 2} : PlanesAcross(meta_, 'z');  // k, j, i
  std::string head_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeNiftiWriter(const std::string& path,
                                                                const VolumeMeta& meta,
                                                                const WriterOptions& options) {
  return Started<NiftiWriter>(path, meta, options);
}

}  // namespace octavo::storage
