#pragma once

// Private to the formats of projection_input.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/storage/projections/internal.h"

// Sinograms and transmissions that Octavo itself committed, [row, angle, column]: their metadata
// say what the values are and which axis is which (z rows, y angles, x columns).
namespace octavo::storage {

/// Whether JSON is the metadata of a commit, and not that of another program.
bool IsOwnMetadata(const nlohmann::json& json);

/// Takes the metadata of a commit for parts->array[0]: quantity, size of a pixel, and, of sinograms
/// and transmissions, the order of the axes; the array is [angle, row, column] from then on.
/// `place`: where in the file they are, for errors. BadProjections for a shape that is not
/// the array's, and for integers with a window; DamagedProjections names a member that is missing
/// or wrong.
absl::Status TakeOwnMetadata(const nlohmann::json& json, const std::string& place,
                             ProjectionParts* parts);
/// The file of metadata beside an array.
enum class MetadataFile {
  kNone,     // there is none
  kForeign,  // another program's
  kOwn,      // taken
};
/// The same with a file, if it is there: that of an array of another program has other metadata, or
/// none. `bytes`: of the file beside which it lies, if there is one; BadProjections if a commit
/// wrote as many others. BadProjections for a file that cannot be read, because it could say that
/// the axes have another order.
absl::StatusOr<MetadataFile> TakeMetadataFile(const std::string& file,
                                              const std::vector<std::string>& roots,
                                              std::optional<int64_t> bytes, ProjectionParts* parts);
/// The same with the metadata as text.
absl::Status TakeOwnMetadata(const std::string& text, const std::string& place,
                             ProjectionParts* parts);

}  // namespace octavo::storage
