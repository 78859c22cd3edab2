#include "server/tomography/projection_file.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/confined_path.h"

namespace octavo::tomography {

absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> OpenProjectionFile(
    const model::ProjectionFileSpec& file, const std::vector<std::string>& roots,
    const std::string& field, const std::vector<double>& angles_rad,
    const std::vector<double>& usual_angles_rad) {
  storage::ProjectionOptions options = file.options;
  const std::string path_field = field + ".path";
  OCTAVO_ASSIGN_OR_RETURN(const storage::ConfinedPath path,
                          storage::ConfinePath(file.path, roots, path_field));
  options.roots = roots;
  if (!angles_rad.empty()) {
    options.angle_values = angles_rad;
    options.angle_unit = storage::AngleUnit::kRadians;
  }
  // The path as the client knows it, without the root's place.
  const auto told = [&](const absl::Status& status) {
    ErrorInfo info = InfoOf(status);
    if (info.field.empty()) info.field = path_field;
    return WithInfo(absl::Status(status.code(), absl::StrCat(field, ": ", status.message())), info);
  };
  auto format = storage::ProjectionFormatOf(path.path, options);
  if (!format.ok()) return told(format.status());
  options.format = *std::move(format);
  if (storage::NamesFurtherFiles(options.format)) {
    if (angles_rad.empty() && options.angles.empty() && !usual_angles_rad.empty()) {
      options.angle_values = usual_angles_rad;
      options.angle_unit = storage::AngleUnit::kRadians;
    }
    for (const auto& [name, further] :
         {std::pair{"flats", &options.flats}, std::pair{"darks", &options.darks},
          std::pair{"angles", &options.angles}}) {
      if (further->empty() || *further == "-") continue;
      OCTAVO_ASSIGN_OR_RETURN(
          const storage::ConfinedPath found,
          storage::ConfinePath(*further, roots, absl::StrCat(field, ".", name)));
      *further = found.path;
    }
  }
  auto input = storage::OpenProjections(path.path, options);
  if (!input.ok()) return told(input.status());
  return input;
}

}  // namespace octavo::tomography
