#include "server/storage/projections/committed_frames.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "gpu/device/dtype.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/volume_meta.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_file.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

constexpr int64_t kMostScratch = int64_t{256} << 20;  // bytes of one read

/// Frames of an array whose axes are stored in another order.
class ReorderedFrames final : public FrameArray {
 public:
  /// `axis`: the stored axis of frames, rows and columns.
  ReorderedFrames(std::shared_ptr<FrameArray> stored, std::array<size_t, 3> axis)
      : stored_(std::move(stored)), axis_(axis) {
    dataset = stored_->dataset;
    type = stored_->type;
    for (size_t i = 0; i < 3; ++i) shape[i] = stored_->shape[axis_[i]];
    const int64_t granularity[3] = {stored_->frame_granularity, stored_->row_granularity, 1};
    frame_granularity = granularity[axis_[0]];
    row_granularity = granularity[axis_[1]];
  }

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                    char* out) override {
    int64_t from[3], extent[3], step[3];  // of the stored axes; step: elements of `out`
    const int64_t steps[3] = {count[1] * count[2], count[2], 1};
    for (size_t i = 0; i < 3; ++i) {
      from[axis_[i]] = start[i];
      extent[axis_[i]] = count[i];
      step[axis_[i]] = steps[i];
    }
    const int64_t plane = extent[1] * extent[2], element = SizeOf(dtype);
    const int64_t planes = PlanesAtATime(plane * element, extent[0]);
    std::vector<char> scratch(static_cast<size_t>(planes * plane * element));
    for (int64_t done = 0; done < extent[0]; done += planes) {
      const int64_t first[3] = {from[0] + done, from[1], from[2]},
                    part[3] = {std::min(planes, extent[0] - done), extent[1], extent[2]};
      OCTAVO_RETURN_IF_ERROR(stored_->Read(first, part, dtype, scratch.data()));
      const char* at = scratch.data();
      for (int64_t i = 0; i < part[0]; ++i) {
        for (int64_t j = 0; j < part[1]; ++j) {
          char* to = out + ((done + i) * step[0] + j * step[1]) * element;
          if (step[2] == 1) {
            std::memcpy(to, at, static_cast<size_t>(part[2] * element));
          } else {
            for (int64_t k = 0; k < part[2]; ++k)
              std::memcpy(to + k * step[2] * element, at + k * element,
                          static_cast<size_t>(element));
          }
          at += part[2] * element;
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  // As many as the memory allows, in whole chunks where it has room for one.
  int64_t PlanesAtATime(int64_t bytes, int64_t planes) const {
    const int64_t most = std::clamp<int64_t>(kMostScratch / bytes, 1, planes),
                  chunk = std::max<int64_t>(stored_->frame_granularity, 1);
    return most > chunk ? most / chunk * chunk : most;
  }

  const std::shared_ptr<FrameArray> stored_;
  const std::array<size_t, 3> axis_;
};

std::string Listed(const int64_t shape[3]) {
  return absl::StrCat("[", shape[0], ", ", shape[1], ", ", shape[2], "]");
}

/// BadProjections if the metadata are those of a file of another size than `bytes`.
absl::Status CheckBytes(const nlohmann::json& json, const std::string& name,
                        std::optional<int64_t> bytes, const ProjectionParts& parts) {
  const nlohmann::json::json_pointer written("/file/bytes");
  if (!bytes.has_value() || !json.contains(written) || !json[written].is_number_integer() ||
      json[written].get<int64_t>() == *bytes)
    return absl::OkStatus();
  return BadProjections(parts.path, name,
                        absl::StrCat("is of a file of ", json[written].get<int64_t>(), " bytes"),
                        absl::StrCat(*bytes, ", as ", BaseOf(parts.path),
                                     " has; where the file has been replaced, remove this one"));
}

}  // namespace

bool IsOwnMetadata(const nlohmann::json& json) {
  if (!json.is_object()) return false;
  const auto software = json.find("software");
  return software != json.end() && software->is_string() &&
         absl::StartsWith(software->get<std::string>(), "octavo ");
}

absl::Status TakeOwnMetadata(const nlohmann::json& json, const std::string& place,
                             ProjectionParts* parts) {
  FrameArray& array = *parts->array[0];
  const auto meta = MetaFromJson(json);
  if (!meta.ok())
    return DamagedProjections(parts->path, place,
                              absl::StrCat("cannot be read: ", meta.status().message()));
  parts->quantity = meta->value_kind;
  if (meta->value_kind != "line_integral" && meta->value_kind != "transmission")
    return absl::OkStatus();
  // Pages of images may go along any axis; every other file has the order of the volume.
  std::array<std::string, 3> stored = {meta->axes[0], meta->axes[1], meta->axes[2]};
  if (const auto pages = json.find("pages"); pages != json.end()) {
    std::array<std::string, 3> sorted;
    if (pages->is_array() && pages->size() == 3) {
      for (size_t d = 0; d < 3; ++d)
        sorted[d] = stored[d] = (*pages)[d].is_string() ? (*pages)[d].get<std::string>() : "";
    }
    std::sort(sorted.begin(), sorted.end());
    if (sorted != std::array<std::string, 3>{"x", "y", "z"})
      return DamagedProjections(parts->path, place, "has no member pages of x, y and z, each once");
  }
  int64_t shape[3];
  for (size_t d = 0; d < 3; ++d) shape[d] = meta->shape[AxisAt(*meta, stored[d][0])];
  if (!std::equal(shape, shape + 3, array.shape))
    return BadProjections(parts->path, place, absl::StrCat("has the shape ", Listed(shape)),
                          absl::StrCat(Listed(array.shape), ", as ", array.dataset, " has"));
  if (meta->has_levels)
    return BadProjections(parts->path, array.dataset,
                          absl::StrCat("holds ", array.type.Name(), " with the window ",
                                       meta->level_lo, " to ", meta->level_hi),
                          "the values themselves, in f16 or f32");
  const auto axis = [&](char name) { return static_cast<size_t>(AxisAt(*meta, name)); };
  if (!meta->spacing_assumed[axis('x')]) parts->pixel_size_um = meta->spacing_um[axis('x')];
  const auto place_of = [&](const char* name) {
    return static_cast<size_t>(std::find(stored.begin(), stored.end(), name) - stored.begin());
  };
  parts->notes.push_back(absl::StrCat(array.dataset, " has the axes ", stored[0], ", ", stored[1],
                                      ", ", stored[2],
                                      " by its metadata: z are rows, y angles, x columns"));
  parts->array[0] = std::make_shared<ReorderedFrames>(
      parts->array[0], std::array<size_t, 3>{place_of("y"), place_of("z"), place_of("x")});
  return absl::OkStatus();
}

absl::StatusOr<MetadataFile> TakeMetadataFile(const std::string& file,
                                              const std::vector<std::string>& roots,
                                              std::optional<int64_t> bytes,
                                              ProjectionParts* parts) {
  const std::string name = BaseOf(file);
  const auto opened = OpenBeneath(file, roots, O_RDONLY | O_NONBLOCK);
  if (absl::IsNotFound(opened.status())) return MetadataFile::kNone;
  absl::Status problem = opened.status();
  if (opened.ok()) {
    const auto json = ReadJsonFile(opened->fd.get(), name);
    if (json.ok()) {
      if (!IsOwnMetadata(*json)) return MetadataFile::kForeign;
      OCTAVO_RETURN_IF_ERROR(CheckBytes(*json, name, bytes, *parts));
      OCTAVO_RETURN_IF_ERROR(TakeOwnMetadata(*json, name, parts));
      return MetadataFile::kOwn;
    }
    problem = json.status();
  }
  return BadProjections(
      parts->path, name,
      absl::StrCat("cannot be read as metadata (", std::string(problem.message()), ")"),
      "the metadata that Octavo wrote, which say what the axes are, or no file of this name");
}

absl::Status TakeOwnMetadata(const std::string& text, const std::string& place,
                             ProjectionParts* parts) {
  const auto json = ParseJson(text);
  if (!json.ok())
    return DamagedProjections(parts->path, place, std::string(json.status().message()));
  return IsOwnMetadata(*json) ? TakeOwnMetadata(*json, place, parts) : absl::OkStatus();
}

}  // namespace octavo::storage
