#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tbb/task_arena.h"

#include "gpu/base/status.h"
#include "server/storage/formats/area_mean.h"
#include "server/storage/formats/downsample.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/zarr_array.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

/// OME-Zarr 0.5 (Zarr v3) or 0.4 (Zarr v2): a group with multiscales of the array "0", the volume,
/// and of further ones if a pyramid is asked for: each half as large as the one before, or with
/// voxels of the sizes that are asked for. The pyramid is computed as slabs come: halves from whole
/// slabs of the finer array, the others from the volume.
class ZarrWriter final : public FileListWriter {
 public:
  ZarrWriter(std::string path, const VolumeMeta& meta, const WriterOptions& options)
      : FileListWriter(std::move(path)),
        meta_(meta),
        v2_(options.ngff == NgffVersion::k04),
        arena_(ArenaThreads(options)) {
    int64_t shape[3] = {meta.shape[0], meta.shape[1], meta.shape[2]};
    double spacing[3] = {meta.spacing_um[0], meta.spacing_um[1], meta.spacing_um[2]};
    for (int i = 0; i < std::max(1, options.pyramid_levels); ++i) {
      AddLevel(shape, spacing, options);
      for (int d = 0; d < 3; ++d) {
        spacing[d] *= shape[d] > 1 ? 2 : 1;
        shape[d] = Halved(shape[d]);
      }
    }
    for (const double um : options.pyramid_um) {
      double factor[3];
      for (int d = 0; d < 3; ++d) {
        const bool coarser = meta.shape[d] > 1 && um > meta.spacing_um[d];
        spacing[d] = coarser ? um : meta.spacing_um[d];
        factor[d] = spacing[d] / meta.spacing_um[d];
        shape[d] = AreaMean::Extent(meta.shape[d], factor[d]);
      }
      AddLevel(shape, spacing, options)->mean =
          std::make_unique<AreaMean>(meta.dtype, meta.shape, factor);
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

  absl::Status Describe(const VolumeMeta& meta) override {
    meta_ = meta;
    return absl::OkStatus();
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
          const WriterOptions& options, bool wide)
        : array(writer, std::move(name), shape, meta, options, wide) {}
    ZarrArray array;
    double spacing[3] = {1, 1, 1};   // of the array
    std::unique_ptr<AreaMean> mean;  // makes it from the volume; else it is half of the one before
    std::vector<char> odd;      // the finer array's last B-scan, waiting for the second of its pair
    std::vector<char> slab;     // the arrived part of the next slab
    int64_t y = 0, filled = 0;  // first B-scan of that slab; number of B-scans in it
  };

  Level* AddLevel(const int64_t* shape, const double* spacing, const WriterOptions& options) {
    // The other arrays' slabs are collected here: they stay small.
    levels_.push_back(std::make_unique<Level>(this, absl::StrCat(levels_.size()), shape, meta_,
                                              options, /*wide=*/levels_.empty()));
    std::copy_n(spacing, 3, levels_.back()->spacing);
    return levels_.back().get();
  }

  int64_t PlaneBytes(const Level& level) const {
    return level.array.shape()[1] * level.array.shape()[2] * SizeOf(meta_.dtype);
  }

  /// Writes a slab of an array, and the slabs of the coarser arrays that it completes.
  absl::Status Write(size_t index, int64_t y, int64_t bscans, const char* data) {
    OCTAVO_RETURN_IF_ERROR(levels_[index]->array.WriteSlab(y, bscans, data));
    if (index == 0) OCTAVO_RETURN_IF_ERROR(WriteMeans(bscans, data));
    if (index + 1 == levels_.size() || levels_[index + 1]->mean != nullptr) return absl::OkStatus();
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
    HalveSlab(meta_.dtype, data, bscans, fine[1], fine[2], Room(coarse));
    return Filled(index + 1, std::max<int64_t>(1, bscans / 2));
  }

  /// Appends what a slab of the volume completes to the arrays that are made from it.
  absl::Status WriteMeans(int64_t bscans, const char* data) {
    for (size_t index = 1; index < levels_.size(); ++index) {
      Level& coarse = *levels_[index];
      if (coarse.mean == nullptr) continue;
      OCTAVO_RETURN_IF_ERROR(coarse.mean->Add(data, bscans, [&](const char* plane) {
        std::copy_n(plane, PlaneBytes(coarse), Room(coarse));
        return Filled(index, 1);
      }));
    }
    return absl::OkStatus();
  }

  int64_t WholeSlab(const Level& level) const {
    return std::min(level.array.SlabBscans(), level.array.shape()[0] - level.y);
  }

  /// Where the next B-scans of an array's slab go.
  char* Room(Level& level) const {
    level.slab.resize(static_cast<size_t>(WholeSlab(level) * PlaneBytes(level)));
    return level.slab.data() + level.filled * PlaneBytes(level);
  }

  /// Counts B-scans that were put there, and writes the slab once it is complete.
  absl::Status Filled(size_t index, int64_t bscans) {
    Level& level = *levels_[index];
    level.filled += bscans;
    const int64_t whole = WholeSlab(level);
    if (level.filled < whole) return absl::OkStatus();
    OCTAVO_RETURN_IF_ERROR(Write(index, level.y, whole, level.slab.data()));
    level.y += whole;
    level.filled = 0;
    return absl::OkStatus();
  }

  /// The scale of array `index`, and the offset of the centre of its first voxel from that of the
  /// volume's first voxel: along an axis, the first voxel is the mean of a box that
  /// begins where the volume's first voxel does.
  json Transformations(size_t index) const {
    json scale = json::array(), translation = json::array();
    for (int d = 0; d < 3; ++d) {
      const double spacing = levels_[index]->spacing[d];
      scale.push_back(spacing);
      translation.push_back((spacing - meta_.spacing_um[d]) / 2);
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
           levels_[1]->mean == nullptr
               ? "means of 2 x 2 x 2 voxels of the array before, an odd last plane left out"
               : "means over boxes of the first array, of which a voxel that lies partly in one "
                 "counts by that part; what fills no box at the end of an axis is left out"}};
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

  VolumeMeta meta_;
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
