#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/stored_volume.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/files.h"
#include "server/storage/zarr/ome.h"
#include "server/storage/zarr/reader.h"
#include "server/storage/zarr/three_axes.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

/// OK if the array matches the volume's metadata.
absl::Status CheckArray(const ZarrArrayReader& array, const VolumeMeta& meta) {
  const absl::Span<const int64_t> shape = array.shape();
  if (shape != absl::MakeConstSpan(meta.shape)) {
    return absl::DataLossError(
        absl::StrCat("shape ", json(std::vector<int64_t>(shape.begin(), shape.end())).dump(),
                     " where the volume has ", json(meta.shape).dump()));
  }
  if (array.data_type() != Info(meta.dtype).zarr)
    return absl::DataLossError(absl::StrCat("data_type ", array.data_type(),
                                            " where the volume has ", Info(meta.dtype).zarr));
  if (array.big_endian()) return absl::UnimplementedError("big-endian voxels");
  return absl::OkStatus();
}

/// The full resolution of an OME-Zarr 0.5. Decodes one row of files along y at a time, in parallel,
/// and keeps it until the next.
class StoredZarr final : public StoredVolume {
 public:
  StoredZarr(VolumeMeta meta, std::string path, ZarrThreeAxes array)
      : StoredVolume(std::move(meta)), path_(std::move(path)), array_(std::move(array)) {}

  absl::Status Read(int64_t y_begin, int64_t bscans, void* out) override {
    const int64_t plane = meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype),
                  rows = array_.file_shape()[0];
    auto* to = static_cast<char*>(out);
    while (bscans > 0) {
      const int64_t row = y_begin / rows, first = row * rows,
                    there = std::min(rows, meta_.shape[0] - first);
      if (row != row_) {
        row_ = -1;
        slab_.resize(static_cast<size_t>(there * plane));
        const int64_t start[3] = {first, 0, 0}, count[3] = {there, meta_.shape[1], meta_.shape[2]};
        OCTAVO_RETURN_IF_ERROR(array_.Read(start, count, slab_.data()));
        row_ = row;
      }
      const int64_t count = std::min(bscans, first + there - y_begin);
      std::copy_n(slab_.data() + (y_begin - first) * plane, count * plane, to);
      y_begin += count, bscans -= count, to += count * plane;
    }
    return absl::OkStatus();
  }

  absl::Status Verify() const override { return VerifyDirectory(path_).status(); }

 private:
  const std::string path_;
  const ZarrThreeAxes array_;
  std::vector<char> slab_;  // slab of the row of files row_
  int64_t row_ = -1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoredVolume>> OpenStoredZarr(const std::string& path) {
  const std::string group_path = absl::StrCat(path, "/zarr.json");
  if (!PathExists(group_path))
    return InvalidField("source",
                        absl::StrCat(path, " is no OME-Zarr of version 0.5: it has no zarr.json"));
  OCTAVO_ASSIGN_OR_RETURN(const ZarrFolder folder, ZarrFolder::Open(path, /*roots=*/{}));
  OCTAVO_ASSIGN_OR_RETURN(const std::optional<json> group, folder.ReadJson("zarr.json"));
  const json attributes = group.has_value() && group->is_object() && group->contains("attributes")
                              ? (*group)["attributes"]
                              : json();
  if (!attributes.is_object() || !attributes.contains("octavo") || !attributes.contains("ome")) {
    return InvalidField(
        "source",
        absl::StrCat(path,
                     " was not written by octavo: its group has no attributes ome and octavo"));
  }
  auto meta = MetaFromJson(attributes["octavo"]);
  if (!meta.ok()) return Annotate(meta.status(), group_path);
  OCTAVO_RETURN_IF_ERROR(ResolveOptions({}, *meta).status());  // checks the shape
  const auto image = OmeImage::Parse(attributes);
  if (absl::IsNotFound(image.status()))
    return absl::DataLossError(absl::StrCat(group_path, ": ", image.status().message()));
  if (!image.ok()) return Annotate(image.status(), group_path);
  const std::string& name = image->levels[0].path;
  if (name.find('/') != std::string::npos || absl::StartsWith(name, "."))
    return absl::DataLossError(absl::StrCat(group_path, ": dataset path '", name, "'"));
  OCTAVO_ASSIGN_OR_RETURN(ZarrFolder below, folder.OpenFolder(name));
  const std::string array_path = below.PathOf("zarr.json");
  // A commit writes all chunks.
  OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<const ZarrArrayReader> array,
                          ZarrArrayReader::Open(std::move(below), MissingChunk::kDamage));
  if (absl::Status fits = CheckArray(*array, *meta); !fits.ok()) return Annotate(fits, array_path);
  OCTAVO_ASSIGN_OR_RETURN(ZarrThreeAxes axes, ZarrThreeAxes::Of(std::move(array)));
  return std::make_unique<StoredZarr>(*std::move(meta), path, std::move(axes));
}

}  // namespace octavo::storage
