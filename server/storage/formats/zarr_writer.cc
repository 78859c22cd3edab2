#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tbb/task_arena.h"

#include "gpu/base/status.h"
#include "server/storage/formats/downsample.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/zarr_array.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

/// OME-Zarr 0.5 (Zarr v3) or 0.4 (Zarr v2): a group with multiscales of the array "0", the volume,
/// and of further ones, each half as large as the one before, if a pyramid is asked for. The
/// pyramid is computed as slabs come, from whole slabs of the finer array.
class ZarrWriter final : public FileListWriter {
 public:
  ZarrWriter(std::string path, const VolumeMeta& meta, const WriterOptions& options)
      : FileListWriter(std::move(path)),
        meta_(meta),
        v2_(options.ngff == NgffVersion::k04),
        arena_(ArenaThreads(options)) {
    int64_t shape[3] = {meta.shape[0], meta.shape[1], meta.shape[2]};
    for (int i = 0; i < std::max(1, options.pyramid_levels); ++i) {
      levels_.push_back(std::make_unique<Level>(this, absl::StrCat(i), shape, meta, options));
      for (int64_t& extent : shape) extent = Halved(extent);
    }
  }

  absl::Status Start() {
    for (const auto& level : levels_) OCTAVO_RETURN_IF_ERROR(level->array.Start());
    return absl::OkStatus();
  }

  int64_t SlabBscans() const override { return levels_[0]->array.SlabBscans(); }

  absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) override {
    absl::Status status;
    arena_.execute([&] { status = Write(0, y_begin, bscans, static_cast<const char*>(data)); });
    return status;
  }

  absl::Status Finish() override {
    for (const auto& level : levels_) OCTAVO_RETURN_IF_ERROR(level->array.Finish());
    OCTAVO_RETURN_IF_ERROR(WriteGroup());
    OCTAVO_RETURN_IF_ERROR(SyncListed());
    for (const auto& level : levels_) OCTAVO_RETURN_IF_ERROR(level->array.SyncDirectories());
    return SyncDirectory(path_);
  }

 private:
  struct Level {
    Level(FileListWriter* writer, std::string name, const int64_t* shape, const VolumeMeta& meta,
          const WriterOptions& options)
        : array(writer, std::move(name), shape, meta, options) {}
    ZarrArray array;
    std::vector<char> odd;      // the finer array's last B-scan, waiting for the second of its pair
    std::vector<char> slab;     // the arrived part of the next slab
    int64_t y = 0, filled = 0;  // first B-scan of that slab; number of B-scans in it
  };

  int64_t PlaneBytes(const Level& level) const {
    return level.array.shape()[1] * level.array.shape()[2] * SizeOf(meta_.dtype);
  }

  /// Writes a slab of an array, and the slabs of the coarser arrays that it completes.
  absl::Status Write(size_t index, int64_t y, int64_t bscans, const char* data) {
    OCTAVO_RETURN_IF_ERROR(levels_[index]->array.WriteSlab(y, bscans, data));
    if (index + 1 == levels_.size()) return absl::OkStatus();
    const Level& fine = *levels_[index];
    Level& coarse = *levels_[index + 1];
    const int64_t plane = PlaneBytes(fine);
    if (fine.array.shape()[0] == 1) return Halve(index, 1, data);
    if (y % 2 != 0) {  // the second of a pair that the last slab split
      coarse.odd.insert(coarse.odd.end(), data, data + plane);
      OCTAVO_RETURN_IF_ERROR(Halve(index, 2, coarse.odd.data()));
      ++y, --bscans, data += plane;
    }
    // Work in portions for which the coarser array's slab has room.
    while (bscans >= 2) {
      const int64_t portion = std::min(
          bscans / 2,
          std::min(coarse.array.SlabBscans(), coarse.array.shape()[0] - coarse.y) - coarse.filled);
      OCTAVO_RETURN_IF_ERROR(Halve(index, 2 * portion, data));
      bscans -= 2 * portion, data += 2 * portion * plane;
    }
    coarse.odd.assign(data, data + bscans * plane);
    return absl::OkStatus();
  }

  /// Appends the means of `bscans` B-scans of array `index` to the next array's slab, and writes
  /// that slab once it is complete.
  absl::Status Halve(size_t index, int64_t bscans, const char* data) {
    Level& coarse = *levels_[index + 1];
    const int64_t* fine = levels_[index]->array.shape();
    const int64_t whole = std::min(coarse.array.SlabBscans(), coarse.array.shape()[0] - coarse.y),
                  plane = PlaneBytes(coarse);
    coarse.slab.resize(static_cast<size_t>(whole * plane));
    HalveSlab(meta_.dtype, data, bscans, fine[1], fine[2],
              coarse.slab.data() + coarse.filled * plane);
    coarse.filled += std::max<int64_t>(1, bscans / 2);
    if (coarse.filled < whole) return absl::OkStatus();
    OCTAVO_RETURN_IF_ERROR(Write(index + 1, coarse.y, whole, coarse.slab.data()));
    coarse.y += whole;
    coarse.filled = 0;
    return absl::OkStatus();
  }

  /// The scale of array `index`, and the offset of the centre of its first voxel from that of the
  /// volume's first voxel: along an axis halved k times, the first voxel is the mean of 2^k voxels,
  /// whose middle is (2^k - 1) / 2 spacings away.
  json Transformations(size_t index) const {
    json scale = json::array(), translation = json::array();
    for (int d = 0; d < 3; ++d) {
      double factor = 1;
      for (size_t i = 0; i < index; ++i) factor *= levels_[i]->array.shape()[d] > 1 ? 2 : 1;
      scale.push_back(meta_.spacing_um[d] * factor);
      translation.push_back(meta_.spacing_um[d] * (factor - 1) / 2);
    }
    json out = json::array({{{"type", "scale"}, {"scale", scale}}});
    if (levels_.size() > 1) out.push_back({{"type", "translation"}, {"translation", translation}});
    return out;
  }

  absl::Status WriteGroup() {
    const auto write = [&](const char* file, const json& value) {
      const std::string text = value.dump(1, ' ', false, json::error_handler_t::replace);
      return WriteListed(file, text.data(), text.size());
    };
    json ome = OmeJson();
    if (!v2_) {
      ome["version"] = "0.5";
      return write("zarr.json", {{"zarr_format", 3},
                                 {"node_type", "group"},
                                 {"attributes", {{"ome", ome}, {"octavo", MetaJson(meta_)}}}});
    }
    ome["multiscales"][0]["version"] = "0.4";
    ome["octavo"] = MetaJson(meta_);
    OCTAVO_RETURN_IF_ERROR(write(".zgroup", {{"zarr_format", 2}}));
    return write(".zattrs", ome);
  }

  /// The members of OME-Zarr, all but the version.
  json OmeJson() const {
    json axes = json::array(), datasets = json::array();
    for (int d = 0; d < 3; ++d) {
      axes.push_back({{"name", meta_.axes[d]}, {"type", "space"}});
      if (!meta_.spacing_assumed[d])
        axes.back()["unit"] = "micrometer";  // without a unit, the scale is in voxels
    }
    for (size_t i = 0; i < levels_.size(); ++i)
      datasets.push_back(
          {{"path", absl::StrCat(i)}, {"coordinateTransformations", Transformations(i)}});
    // The ends of the window: the range of the type, or for floats the range shown.
    double bottom = meta_.display_lo, top = meta_.display_hi;
    if (meta_.dtype == DType::kU8 || meta_.dtype == DType::kU16)
      bottom = 0, top = meta_.dtype == DType::kU8 ? 255 : 65535;
    if (meta_.dtype == DType::kI8 || meta_.dtype == DType::kI16)
      bottom = meta_.dtype == DType::kI8 ? -128 : -32768, top = -bottom - 1;
    json multiscale = {{"name", meta_.title.empty() ? meta_.volume_name : meta_.title},
                       {"axes", axes},
                       {"datasets", datasets}};
    if (levels_.size() > 1) {
      multiscale["type"] = "mean";
      multiscale["metadata"] = {
          {"description",
           "means of 2 x 2 x 2 voxels of the array before, an odd last plane left out"}};
    }
    const json channel = {
        {"label", meta_.value_kind},
        {"color", "FFFFFF"},
        {"active", true},
        {"window",
         {{"min", bottom}, {"max", top}, {"start", meta_.display_lo}, {"end", meta_.display_hi}}}};
    return {{"multiscales", json::array({multiscale})},
            {"omero", {{"channels", json::array({channel})}}}};
  }

  const VolumeMeta meta_;
  const bool v2_;
  std::vector<std::unique_ptr<Level>> levels_;  // from the volume to the coarsest
  tbb::task_arena arena_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeZarrWriter(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options) {
  auto writer = std::make_unique<ZarrWriter>(path, meta, options);
  OCTAVO_RETURN_IF_ERROR(writer->Start());
  return writer;
}

}  // namespace octavo::storage
