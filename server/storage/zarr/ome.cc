#include "server/storage/zarr/ome.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/json_members.h"
#include "server/storage/zarr/folder.h"
#include "server/storage/zarr/metadata_parts.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
constexpr size_t kMostLevels = 64;

absl::Status ReadAxes(const json& value, const std::string& where, std::vector<OmeAxis>* out) {
  if (!value.is_array() || value.size() < 2 || value.size() > 5)
    return BadValue(where, value, "are arrays of 2 to 5 axes");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = absl::StrCat(where, "[", i, "]");
    OmeAxis axis;
    OCTAVO_RETURN_IF_ERROR(ReadMember(value[i], "name", &axis.name, at));
    if (value[i].contains("type") && !value[i]["type"].is_null())
      OCTAVO_RETURN_IF_ERROR(ReadMember(value[i], "type", &axis.type, at));
    if (value[i].contains("unit") && !value[i]["unit"].is_null())
      OCTAVO_RETURN_IF_ERROR(ReadMember(value[i], "unit", &axis.unit, at));
    if (std::any_of(out->begin(), out->end(),
                    [&](const OmeAxis& other) { return other.name == axis.name; }))
      return BadValue(MemberPath(at, "name"), axis.name, "are names that no other axis has");
    out->push_back(std::move(axis));
  }
  return absl::OkStatus();
}

absl::Status ReadNumbers(const json& value, const std::string& name, size_t rank, bool positive,
                         std::vector<double>* out) {
  const std::string allowed =
      absl::StrCat("are arrays of ", rank, positive ? " numbers above 0" : " finite numbers");
  if (!value.is_array() || value.size() != rank) return BadValue(name, value, allowed);
  out->clear();
  for (const json& number : value) {
    const double n = number.is_number() ? number.get<double>() : NAN;
    if (!std::isfinite(n) || (positive && n <= 0)) return BadValue(name, value, allowed);
    out->push_back(n);
  }
  return absl::OkStatus();
}

/// Applies transformations after those that `level` has.
absl::Status Apply(const json& value, const std::string& where, bool scale_required,
                   OmeLevel* level) {
  const size_t rank = level->scale.size();
  if (!value.is_array() || value.size() > 2)
    return BadValue(where, value, "are arrays of one scale and at most one translation behind it");
  bool scaled = false, translated = false;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = absl::StrCat(where, "[", i, "]");
    std::string type;
    OCTAVO_RETURN_IF_ERROR(ReadMember(value[i], "type", &type, at));
    if (type == "identity" && !scale_required) continue;
    if (type != "scale" && type != "translation")
      return NotRead(MemberPath(at, "type"), type, "are the transformations scale and translation");
    if (value[i].contains("path"))
      return NotRead(MemberPath(at, "path"), value[i]["path"],
                     "are transformations whose numbers are in the metadata");
    OCTAVO_ASSIGN_OR_RETURN(const json* const numbers, Member(value[i], at, type));
    std::vector<double> by;
    OCTAVO_RETURN_IF_ERROR(ReadNumbers(*numbers, MemberPath(at, type), rank, type == "scale", &by));
    bool& seen = type == "scale" ? scaled : translated;
    if (seen || (type == "scale" && translated))
      return BadValue(where, value,
                      "are arrays of one scale and at most one translation behind it");
    seen = true;
    for (size_t d = 0; d < rank; ++d) {
      if (type == "scale") level->scale[d] *= by[d], level->translation[d] *= by[d];
      if (type == "translation") level->translation[d] += by[d];
    }
  }
  if (scale_required && !scaled) return BadValue(where, value, "are arrays with a scale");
  return absl::OkStatus();
}

}  // namespace

const json& OmeMembers(const json& attributes) {
  const bool wrapped = attributes.is_object() && attributes.contains("ome");
  return wrapped ? attributes["ome"] : attributes;
}

std::vector<std::string> OmeImageNames(const json& attributes) {
  const json& ome = OmeMembers(attributes);
  std::vector<std::string> names;
  if (!ome.is_object() || !ome.contains("multiscales") || !ome["multiscales"].is_array())
    return names;
  for (const json& image : ome["multiscales"]) {
    const bool named = image.is_object() && image.contains("name") && image["name"].is_string();
    names.push_back(named ? image["name"].get<std::string>() : "");
  }
  return names;
}

absl::StatusOr<OmeImage> OmeImage::Parse(const json& attributes, size_t index) {
  const bool wrapped = attributes.is_object() && attributes.contains("ome");
  const std::string outer = wrapped ? "attributes.ome" : "attributes";
  const json& ome = OmeMembers(attributes);
  if (!ome.is_object()) return BadValue(outer, ome, "are objects");
  if (!ome.contains("multiscales"))
    return absl::NotFoundError(absl::StrCat(outer, ".multiscales is missing"));
  const json& all = ome["multiscales"];
  const std::string list = outer + ".multiscales";
  if (!all.is_array() || all.size() <= index)
    return BadValue(list, all, absl::StrCat("are arrays of more than ", index, " images"));
  const std::string where = absl::StrCat(list, "[", index, "]");
  const json& image = all[index];
  if (!image.is_object()) return BadValue(where, image, "are objects");
  OmeImage out;
  // 0.5 has its version beside the list. In 0.4, "version" of an image should be there.
  const json* version = wrapped && ome.contains("version") ? &ome["version"] : nullptr;
  if (version == nullptr && image.contains("version")) version = &image["version"];
  const std::string name = version != nullptr && wrapped && ome.contains("version")
                               ? outer + ".version"
                               : where + ".version";
  out.version = wrapped ? "0.5" : "0.4";
  if (version != nullptr) {
    OCTAVO_RETURN_IF_ERROR(ReadValue(*version, name, &out.version));
    if (out.version.substr(0, 3) != "0.4" && out.version.substr(0, 3) != "0.5")
      return NotRead(name, *version, "are the versions 0.4 and 0.5");
  }
  if (image.contains("name") && !image["name"].is_null())
    OCTAVO_RETURN_IF_ERROR(ReadMember(image, "name", &out.name, where));
  OCTAVO_ASSIGN_OR_RETURN(const json* const axes, Member(image, where, "axes"));
  OCTAVO_RETURN_IF_ERROR(ReadAxes(*axes, where + ".axes", &out.axes));
  OCTAVO_ASSIGN_OR_RETURN(const json* const datasets, Member(image, where, "datasets"));
  if (!datasets->is_array() || datasets->empty() || datasets->size() > kMostLevels)
    return BadValue(where + ".datasets", *datasets,
                    absl::StrCat("are arrays of 1 to ", kMostLevels, " levels"));
  for (size_t i = 0; i < datasets->size(); ++i) {
    const std::string at = absl::StrCat(where, ".datasets[", i, "]");
    const json& dataset = (*datasets)[i];
    OmeLevel level{.path = "",
                   .scale = std::vector<double>(out.axes.size(), 1),
                   .translation = std::vector<double>(out.axes.size(), 0)};
    OCTAVO_RETURN_IF_ERROR(ReadMember(dataset, "path", &level.path, at));
    if (!IsPathBelow(level.path))
      return BadValue(at + ".path", level.path,
                      "are names of arrays below the group, without \"..\" and empty parts");
    OCTAVO_ASSIGN_OR_RETURN(const json* const own,
                            Member(dataset, at, "coordinateTransformations"));
    OCTAVO_RETURN_IF_ERROR(
        Apply(*own, at + ".coordinateTransformations", /*scale_required=*/true, &level));
    if (image.contains("coordinateTransformations"))
      OCTAVO_RETURN_IF_ERROR(Apply(image["coordinateTransformations"],
                                   where + ".coordinateTransformations",
                                   /*scale_required=*/false, &level));
    out.levels.push_back(std::move(level));
  }
  return out;
}

std::optional<double> OmeUnitMicrometres(const std::string& unit) {
  static const std::pair<const char*, double> kUnits[] = {
      {"yoctometer", 1e-18}, {"zeptometer", 1e-15},
      {"attometer", 1e-12},  {"femtometer", 1e-9},
      {"picometer", 1e-6},   {"angstrom", 1e-4},
      {"nanometer", 1e-3},   {"micrometer", 1},
      {"millimeter", 1e3},   {"centimeter", 1e4},
      {"decimeter", 1e5},    {"meter", 1e6},
      {"hectometer", 1e8},   {"kilometer", 1e9},
      {"megameter", 1e12},   {"gigameter", 1e15},
      {"terameter", 1e18},   {"petameter", 1e21},
      {"exameter", 1e24},    {"zettameter", 1e27},
      {"yottameter", 1e30},  {"inch", 25400},
      {"foot", 304800},      {"yard", 914400},
      {"mile", 1609344000},  {"parsec", 3.0856775814913673e22}};
  for (const auto& [name, micrometres] : kUnits) {
    if (unit == name) return micrometres;
  }
  return std::nullopt;
}

}  // namespace octavo::storage
