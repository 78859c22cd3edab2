#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/storage/formats/writer.h"

// Derives a file's format from the ending of its name, ignoring case.
namespace octavo::storage {

struct Ending {
  std::optional<Format> format;  // files of this format end so
  std::string foreign;           // else an ending that the server does not write: ".png"
  std::string packed;  // a compressed file of a format that is: ".nii.gz"; then `foreign` is ".gz"
};

/// The ending of `path`. Unknown endings are ignored, because any name may contain a dot
/// ("run.2026-11-22", "eye.v2").
Ending EndingOf(const std::string& path);

/// The endings of formats: ".zarr", ".npy", ...
std::vector<std::string> FormatEndings();

/// The error for a destination with an ending that the server does not write: a sentence without
/// its subject, "is 'x.png', ...".
std::string WhyForeign(const std::string& path, const Ending& ending);

/// The format in which `destination` is written: by its ending, else `asked`, else OME-Zarr.
/// InvalidArgument (<field>.format or <field>.destination) if the two contradict each other, and
/// for the ending of another kind of file unless a format is given: x.png must not become
/// x.png.ome.zarr.
absl::StatusOr<Format> FormatFor(const std::string& field, const std::string& destination,
                                 std::optional<Format> asked);

}  // namespace octavo::storage
