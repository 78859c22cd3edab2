#include "server/engine/earlier_result.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/json.h"
#include "server/storage/io/confined_path.h"

namespace octavo::engine {
namespace {

/// A text of the record; empty if it has none there.
std::string TextAt(const nlohmann::json& json, const char* place) {
  const nlohmann::json::json_pointer pointer(place);
  if (!json.is_object() || !json.contains(pointer) || !json[pointer].is_string()) return "";
  return json[pointer].get<std::string>();
}

bool IsSameFile(const std::string& a, const std::string& b, const std::vector<std::string>& roots) {
  if (a == b) return true;
  const auto one = storage::ConfinePath(a, roots, "path"),
             other = storage::ConfinePath(b, roots, "path");
  return one.ok() && other.ok() && one->path == other->path;
}

/// ALL, FIRST, SECOND or BEST.
std::string HalfTurnOf(const nlohmann::json& request) {
  const std::string name = TextAt(request, "/half_turn");
  if (name.empty() || name == "HALF_TURN_UNSPECIFIED") return "ALL";
  return std::string(absl::StripPrefix(name, "HALF_TURN_"));
}

}  // namespace

std::string HowResultDiffers(const nlohmann::json& processing, const model::TomographySpec& wanted,
                             const std::vector<std::string>& roots) {
  const std::string kind = TextAt(processing, "/job/kind");
  if (kind != "tomography") {
    return absl::StrCat("it was made by ",
                        kind.empty() ? "no job" : absl::StrCat("a job of ", kind),
                        ", and not by one of tomography");
  }
  const nlohmann::json::json_pointer place("/job/parameters");
  if (!processing.contains(place) || !processing[place].is_object()) return "";
  const nlohmann::json& made = processing[place];
  const std::string path = TextAt(made, "/file/path");
  const auto* const file = std::get_if<model::ProjectionFileSpec>(&wanted.input);
  if (file != nullptr && !path.empty() && !IsSameFile(path, file->path, roots))
    return absl::StrCat("it was made of '", path, "', and this scan is '", file->path, "'");
  if (const auto* mosaic = std::get_if<model::ProjectionMosaicSpec>(&wanted.input)) {
    for (size_t i = 0; i < mosaic->tiles.size(); ++i) {
      const std::string tile =
          TextAt(made, absl::StrCat("/mosaic/tiles/", i, "/file/path").c_str());
      const std::string& path_wanted = mosaic->tiles[i].file.path;
      if (!IsSameFile(tile, path_wanted, roots))
        return absl::StrCat("tile ", i, " of its mosaic was '", tile, "', and '", path_wanted,
                            "' is wanted");
    }
  } else if (made.contains("mosaic")) {
    return "it was made of a mosaic";
  }
  const bool sinograms = TextAt(made, "/output") == "TOMOGRAPHY_OUTPUT_SINOGRAMS";
  if (sinograms != wanted.makes_sinograms()) {
    return sinograms ? "it holds prepared sinograms, and slices are wanted"
                     : "it holds slices, and prepared sinograms are wanted";
  }
  const auto request = ParseJson(wanted.json);
  if (!request.ok()) return "";
  const std::string half = HalfTurnOf(made), wanted_half = HalfTurnOf(*request);
  if (half == wanted_half) return "";
  return absl::StrCat("its half_turn is ", half, ", and ", wanted_half, " is wanted");
}

}  // namespace octavo::engine
