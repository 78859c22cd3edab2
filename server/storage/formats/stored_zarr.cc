#include <algorithm>
#include <memory>
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
#include "server/storage/io/json_members.h"
#include "server/storage/zarr/reader.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

/// OK if the array matches the volume's metadata.
absl::Status CheckArray(const ZarrArrayReader& array, const VolumeMeta& meta) {
  if (array.rank() != 3 || !std::equal(array.shape(), array.shape() + 3, meta.shape)) {
    return absl::DataLossError(
        absl::StrCat("shape ", json(std::vector<int64_t>(array.shape(), array.shape() + 3)).dump(),
                     " where the volume has ", json(meta.shape).dump()));
  }
  if (array.data_type() != Info(meta.dtype).zarr)
    return absl::DataLossError(absl::StrCat("data_type ", array.data_type(),
                                            " where the volume has ", Info(meta.dtype).zarr));
  if (array.big_endian()) return absl::UnimplementedError("big-endian voxels");
  return absl::OkStatus();
}

/// The path of the full resolution of the first image.
absl::Status FirstDataset(const json& ome, std::string* path) {
  std::vector<json> multiscales, datasets;
  OCTAVO_RETURN_IF_ERROR(ReadMember(ome, "multiscales", &multiscales, "attributes.ome"));
  if (multiscales.empty()) return absl::DataLossError("attributes.ome.multiscales is empty");
  OCTAVO_RETURN_IF_ERROR(
      ReadMember(multiscales[0], "datasets", &datasets, "attributes.ome.multiscales[0]"));
  if (datasets.empty())
    return absl::DataLossError("attributes.ome.multiscales[0].datasets is empty");
  return ReadMember(datasets[0], "path", path, "attributes.ome.multiscales[0].datasets[0]");
}

/// The full resolution of an OME-Zarr 0.5. Decodes one row of files along y at a time, in parallel,
/// and keeps it until the next.
class StoredZarr final : public StoredVolume {
 public:
  StoredZarr(VolumeMeta meta, std::string path, std::unique_ptr<ZarrArrayReader> array)
      : StoredVolume(std::move(meta)), path_(std::move(path)), array_(std::move(array)) {}

  absl::Status Read(int64_t y_begin, int64_t bscans, void* out) override {
    const int64_t plane = meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype),
                  rows = array_->file_shape()[0];
    auto* to = static_cast<char*>(out);
    while (bscans > 0) {
      const int64_t row = y_begin / rows, first = row * rows,
                    there = std::min(rows, meta_.shape[0] - first);
      if (row != row_) {
        row_ = -1;
        slab_.resize(static_cast<size_t>(there * plane));
        const int64_t start[3] = {first, 0, 0}, count[3] = {there, meta_.shape[1], meta_.shape[2]};
        OCTAVO_RETURN_IF_ERROR(array_->Read(start, count, slab_.data()));
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
  const std::unique_ptr<ZarrArrayReader> array_;
  std::vector<char> slab_;  // slab of the row of files row_
  int64_t row_ = -1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoredVolume>> OpenStoredZarr(const std::string& path) {
  const std::string group_path = absl::StrCat(path, "/zarr.json");
  if (!PathExists(group_path))
    return InvalidField("source",
                        absl::StrCat(path, " is no OME-Zarr of version 0.5: it has no zarr.json"));
  OCTAVO_ASSIGN_OR_RETURN(const json group, ZarrArrayReader::ReadJson(group_path, /*roots=*/{}));
  const json attributes =
      group.is_object() && group.contains("attributes") ? group["attributes"] : json();
  if (!attributes.is_object() || !attributes.contains("octavo") || !attributes.contains("ome")) {
    return InvalidField(
        "source",
        absl::StrCat(path,
                     " was not written by octavo: its group has no attributes ome and octavo"));
  }
  auto meta = MetaFromJson(attributes["octavo"]);
  if (!meta.ok()) return Annotate(meta.status(), group_path);
  OCTAVO_RETURN_IF_ERROR(ResolveOptions({}, *meta).status());  // checks the shape
  std::string name;
  if (absl::Status named = FirstDataset(attributes["ome"], &name); !named.ok())
    return Annotate(named, group_path);
  if (name.empty() || name.find('/') != std::string::npos || absl::StartsWith(name, "."))
    return absl::DataLossError(absl::StrCat(group_path, ": dataset path '", name, "'"));
  const std::string array_path = absl::StrCat(path, "/", name);
  // A commit writes all chunks.
  OCTAVO_ASSIGN_OR_RETURN(
      auto array,
      ZarrArrayReader::Open(array_path, ZarrArrayReader::MissingChunk::kDamage, /*roots=*/{}));
  if (absl::Status fits = CheckArray(*array, *meta); !fits.ok())
    return Annotate(fits, array_path + "/zarr.json");
  return std::make_unique<StoredZarr>(*std::move(meta), path, std::move(array));
}

}  // namespace octavo::storage
