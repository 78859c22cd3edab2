#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "server/job/job_environment.h"
#include "server/model/job_spec.h"
#include "server/storage/formats/volume_input.h"
#include "server/volume_import/source_stamp.h"

namespace octavo::volume_import {

inline constexpr char kFieldPrefix[] = "volume_import.";

/// What an import reads: a file or folder below a root, or one that a client has handed over.
struct ImportSource {
  std::string field;  // of the request that names it: "volume_import.path"
  std::string name;   // as the client calls it
  std::string path;   // of what was opened, as the kernel gave it; empty = it has none
  /// Of it, and of the files that it names, by their names: of the moments before they were read.
  std::vector<std::pair<std::string, SourceStamp>> stamps;
  std::unique_ptr<storage::VolumeInput> input;

  /// Opens it and reads its description. Errors name the field: InvalidArgument, NotFound (NO_FILE;
  /// TICKET_UNKNOWN), and those of ConfinePath and OpenVolumeInput.
  static absl::StatusOr<ImportSource> Open(const model::ImportSpec& spec,
                                           const job::JobEnvironment& environment);
  /// Aborted (REPLACED) if it has changed since.
  absl::Status CheckUnchanged() const;
  /// An error about it: with `field`, if it has none.
  absl::Status At(const absl::Status& status) const;
};

}  // namespace octavo::volume_import
