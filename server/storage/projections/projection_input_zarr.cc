// Zarr: an array of projections, or a group that has it with flats, darks and angles beside it.

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/files.h"
#include "server/storage/projections/committed_frames.h"
#include "server/storage/projections/internal.h"
#include "server/storage/zarr/group.h"
#include "server/storage/zarr/ome.h"
#include "server/storage/zarr/three_axes.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
using Roots = ZarrFolder::Roots;
constexpr int64_t kMostNumbers = int64_t{1} << 24;
constexpr char kAllowed[] =
    "data in the folder itself, or under the configured roots (storage.replay_roots)";

/// Data outside of the roots count as missing, and damaged metadata as no array's.
bool HasArray(const std::string& path, const Roots& roots) {
  const auto folder = ZarrFolder::Open(path, roots);
  if (!folder.ok()) return false;
  const auto kind = ZarrNodeKindOf(*folder);
  // A v2 array counts even if its metadata lead elsewhere: opening it says so.
  return kind.ok() ? *kind == ZarrNodeKind::kArray : PathExists(path + "/.zarray");
}

/// An array below the group, its errors those of projection_input.h.
absl::StatusOr<ZarrThreeAxes> OpenArray(const std::string& group, const std::string& name,
                                        const Roots& roots) {
  const std::string dataset = name.empty() ? "the array" : name;
  if (!name.empty() && !IsPathBelow(name))
    return BadProjections(group, "the name", absl::StrCat("is '", name, "'"),
                          "names of arrays below the group");
  const auto open = [&]() -> absl::StatusOr<ZarrThreeAxes> {
    OCTAVO_ASSIGN_OR_RETURN(
        std::shared_ptr<const ZarrArrayReader> array,
        ZarrArrayReader::Open(name.empty() ? group : absl::StrCat(group, "/", name),
                              MissingChunk::kFill, roots));
    return ZarrThreeAxes::Of(std::move(array));
  };
  auto opened = open();
  if (opened.ok()) return opened;
  const absl::Status& status = opened.status();
  const std::string text(status.message());
  if (absl::IsPermissionDenied(status))
    return BadProjections(group, dataset, "leads outside of the configured roots, or to nothing",
                          kAllowed);
  if (absl::IsNotFound(status))
    return BadProjections(group, dataset, "is missing", "an array of this name");
  if (absl::IsUnimplemented(status) && absl::StrContains(text, "codec"))
    return UnknownCompression(group, dataset, text);
  if (absl::IsUnimplemented(status))
    return BadProjections(group, dataset, absl::StrCat("cannot be read: ", text),
                          "regular grids of real numbers");
  return DamagedProjections(group, dataset, absl::StrCat("cannot be opened: ", text));
}

absl::StatusOr<StoredType> TypeOf(const std::string& group, const std::string& dataset,
                                  const ZarrArrayReader& array) {
  auto type = StoredType::FromZarr(array.data_type());
  if (!type.has_value())
    return BadProjections(group, dataset, absl::StrCat("holds ", array.data_type()),
                          "real numbers");
  type->big_endian = array.big_endian();
  return *type;
}

class ZarrFrames final : public FrameArray {
 public:
  ZarrFrames(std::string group, ZarrThreeAxes array)
      : group_(std::move(group)), array_(std::move(array)) {}

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                    char* out) override {
    const int64_t n = count[0] * count[1] * count[2];
    const bool convert = !type.IsAs(dtype);
    std::vector<char> memory(convert ? static_cast<size_t>(n * type.bytes) : 0);
    const absl::Status read = array_.Read(start, count, convert ? memory.data() : out);
    if (absl::IsPermissionDenied(read))
      return BadProjections(group_, dataset,
                            "has files outside of the configured roots, or links to nothing",
                            kAllowed);
    if (!read.ok())
      return DamagedProjections(group_, dataset,
                                absl::StrCat("cannot be read: ", std::string(read.message())));
    if (convert) LoadNumbers(memory.data(), type, n, dtype, out);
    return absl::OkStatus();
  }

 private:
  const std::string group_;
  const ZarrThreeAxes array_;
};

absl::StatusOr<std::shared_ptr<FrameArray>> OpenFrames(const std::string& group,
                                                       const std::string& name, bool flat,
                                                       const Roots& roots) {
  OCTAVO_ASSIGN_OR_RETURN(const ZarrThreeAxes axes, OpenArray(group, name, roots));
  const ZarrArrayReader& array = axes.array();
  const std::string dataset = name.empty() ? "the array" : name;
  if (array.rank() < (flat ? 2 : 3))
    return BadProjections(group, dataset, absl::StrCat("has ", array.rank(), " dimensions"),
                          flat ? "2 or 3: [frame, row, column]" : "3: [angle, row, column]");
  auto frames = std::make_shared<ZarrFrames>(group, axes);
  frames->dataset = dataset;
  OCTAVO_ASSIGN_OR_RETURN(frames->type, TypeOf(group, dataset, array));
  std::copy(axes.shape(), axes.shape() + 3, frames->shape);
  frames->frame_granularity = std::max<int64_t>(1, std::min(axes.file_shape()[0], axes.shape()[0]));
  frames->row_granularity = std::max<int64_t>(1, std::min(axes.file_shape()[1], axes.shape()[1]));
  return frames;
}

/// The first of these that is an array below the group, or "".
std::string FirstOf(const std::string& group, const std::vector<std::string>& names,
                    const Roots& roots) {
  for (const std::string& name : names) {
    if (HasArray(absl::StrCat(group, "/", name), roots)) return name;
  }
  return "";
}

/// The full resolution of an OME-Zarr group; "" if the folder is none. Others' errors are those of
/// projection_input.h.
absl::StatusOr<std::string> OmeDataset(const std::string& path, const Roots& roots) {
  auto folder = ZarrFolder::Open(path, roots);
  if (!folder.ok()) return "";
  const auto group = ZarrGroup::Open(*std::move(folder));
  if (!group.ok()) return "";
  const auto image = OmeImage::Parse(group->attributes);
  if (absl::IsNotFound(image.status())) return "";
  if (absl::IsUnimplemented(image.status()))
    return BadProjections(path, "the image",
                          absl::StrCat("cannot be read: ", std::string(image.status().message())),
                          "OME-Zarr 0.4 and 0.5");
  if (!image.ok())
    return DamagedProjections(
        path, "the image", absl::StrCat("cannot be read: ", std::string(image.status().message())));
  return image->levels[0].path;
}

/// The metadata of a commit: an attribute of the group. Nothing of other groups.
absl::Status TakeGroupMetadata(const std::string& path, const Roots& roots,
                               ProjectionParts* parts) {
  auto folder = ZarrFolder::Open(path, roots);
  if (!folder.ok()) return absl::OkStatus();
  const auto group = ZarrGroup::Open(*std::move(folder));
  if (!group.ok() || !group->attributes.contains("octavo")) return absl::OkStatus();
  const json& own = group->attributes["octavo"];
  return IsOwnMetadata(own) ? TakeOwnMetadata(own, "the attribute octavo", parts)
                            : absl::OkStatus();
}

/// That the folder's own metadata, if there are any, are JSON within the limits.
absl::Status CheckReadable(const std::string& group, const Roots& roots) {
  const auto folder = ZarrFolder::Open(group, roots);
  if (!folder.ok()) return absl::OkStatus();  // told by the caller
  for (const char* name : {"zarr.json", ".zarray", ".zgroup", ".zattrs"}) {
    if (const auto meta = folder->ReadJson(name); !meta.ok())
      return DamagedProjections(
          group, name, absl::StrCat("cannot be read: ", std::string(meta.status().message())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenZarrProjections(
    const std::string& path, const ProjectionOptions& options) {
  // The folder itself must lie under the roots.
  Roots roots;
  if (options.roots.empty()) roots.push_back(RealPath(path));
  for (const std::string& root : options.roots) {
    if (std::string real = RealPath(root); !real.empty()) roots.push_back(std::move(real));
  }
  ProjectionParts parts;
  parts.path = path;
  parts.format = "zarr";
  std::string data = options.projections;
  bool image = false;
  if (data.empty() && !HasArray(path, roots)) {
    data = FirstOf(path, {"exchange/data", "data"}, roots);
    if (data.empty()) {
      OCTAVO_ASSIGN_OR_RETURN(data, OmeDataset(path, roots));
      image = !data.empty();
    }
    if (data.empty()) {
      OCTAVO_RETURN_IF_ERROR(CheckReadable(path, roots));
      return BadProjections(path, "the folder",
                            "has neither an array of projections nor TIFF files",
                            "an array, a group with exchange/data, data or an OME-Zarr image, or "
                            "files that end in .tif or .tiff");
    }
  }
  // The array of an image, named by the request or as the folder itself, is still that image.
  std::string group = path, name_in_group = data;
  if (data.empty()) {
    const std::string plain = path.substr(0, path.find_last_not_of('/') + 1);
    group = ParentOf(plain);
    name_in_group = BaseOf(plain);
  }
  if (!image) {
    const auto own = OmeDataset(group, roots);
    image = own.ok() && !own->empty() &&
            std::filesystem::path(name_in_group).lexically_normal() == std::filesystem::path(*own);
  }
  OCTAVO_ASSIGN_OR_RETURN(parts.array[0], OpenFrames(path, data, /*flat=*/false, roots));
  if (image) {
    OCTAVO_RETURN_IF_ERROR(TakeGroupMetadata(group, roots, &parts));
  } else {
    (void)TellAxes(absl::StrCat("Nothing says what the axes of ", parts.array[0]->dataset, " are"),
                   &parts);
  }
  const std::pair<const std::string*, const char*> further[] = {
      {nullptr, ""}, {&options.flats, "data_white"}, {&options.darks, "data_dark"}};
  for (size_t k = 1; k < 3; ++k) {
    std::string name = *further[k].first;
    if (name.empty() && !data.empty())
      name =
          FirstOf(path, {absl::StrCat("exchange/", further[k].second), further[k].second}, roots);
    if (name.empty() || name == "-") continue;
    OCTAVO_ASSIGN_OR_RETURN(parts.array[k], OpenFrames(path, name, /*flat=*/true, roots));
  }
  if (options.angle_values.empty()) {
    std::string name = options.angles;
    if (name.empty() && !data.empty()) name = FirstOf(path, {"exchange/theta", "theta"}, roots);
    if (name.empty())
      return BadProjections(path, "angles", "are not given", "an array theta, or their values");
    OCTAVO_ASSIGN_OR_RETURN(const ZarrThreeAxes array, OpenArray(path, name, roots));
    if (array.array().rank() > 1)
      return BadProjections(path, name, absl::StrCat("has ", array.array().rank(), " dimensions"),
                            "1");
    OCTAVO_ASSIGN_OR_RETURN(const StoredType type, TypeOf(path, name, array.array()));
    const int64_t count[3] = {1, 1, array.shape()[2]}, start[3] = {0, 0, 0};
    if (count[2] < 1 || count[2] > kMostNumbers)
      return BadProjections(path, name, absl::StrCat("has ", count[2], " values"),
                            absl::StrCat("1 to ", kMostNumbers));
    std::vector<char> bytes(static_cast<size_t>(count[2] * type.bytes));
    if (const absl::Status read = array.Read(start, count, bytes.data());
        absl::IsPermissionDenied(read))
      return BadProjections(
          path, name, "has files outside of the configured roots, or links to nothing", kAllowed);
    else if (!read.ok())
      return DamagedProjections(path, name,
                                absl::StrCat("cannot be read: ", std::string(read.message())));
    parts.angles = LoadDoubles(bytes.data(), type, count[2]);
    parts.angles_dataset = name;
    const json& attributes = array.array().attributes();
    if (attributes.is_object() && attributes.contains("units") && attributes["units"].is_string())
      parts.angle_unit = attributes["units"];
  }
  return AssembleProjections(std::move(parts), options);
}

}  // namespace octavo::storage
