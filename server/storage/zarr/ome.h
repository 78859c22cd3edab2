#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace octavo::storage {

/// An axis of an OME-Zarr image.
struct OmeAxis {
  std::string name;
  std::string type;  // "space", "time", "channel", another one, or "" if it is not told
  std::string unit;  // as in the file: "micrometer"; "" if it is not told
};

/// A resolution of an image. A place is index · scale + translation, in the axes' units; the
/// transformations of the level and those of the whole image are combined.
struct OmeLevel {
  std::string path;  // of the array below the group
  std::vector<double> scale, translation;
};

/// An entry of "multiscales": OME-Zarr 0.4 (Zarr v2), 0.5 (Zarr v3), and 0.4's form in the
/// attributes of a v3 group, which programs also write.
struct OmeImage {
  std::string version;  // "0.4" or "0.5"
  std::string name;
  std::vector<OmeAxis> axes;     // 2 to 5, in the order of the arrays' axes
  std::vector<OmeLevel> levels;  // the full resolution first

  /// The image of a group's attributes; `index` of "multiscales", the first by default. NotFound:
  /// there are no multiscales; DataLoss: against the specification; Unimplemented: another version,
  /// or a transformation that is neither scale nor translation nor identity. Both name the member.
  static absl::StatusOr<OmeImage> Parse(const nlohmann::json& attributes, size_t index = 0);
};

/// The member that has "multiscales", "omero" and others: "ome" of the attributes, or, as in 0.4,
/// the attributes themselves.
const nlohmann::json& OmeMembers(const nlohmann::json& attributes);
/// The names of the images in a group's attributes, "" for one without a name.
std::vector<std::string> OmeImageNames(const nlohmann::json& attributes);

/// The length of a unit of space that OME-Zarr allows, in micrometres; nothing for others.
std::optional<double> OmeUnitMicrometres(const std::string& unit);

}  // namespace octavo::storage
