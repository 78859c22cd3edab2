#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/storage/formats/writer.h"

// What the ending of a file's name says about its format. Upper and lower case mean the same.
namespace octavo::storage {

struct Ending {
  std::optional<Format> format;  // files of this format end so
  std::string foreign;           // else the ending of files that are not written: ".png"
  std::string packed;  // a compressed file of a format that is: ".nii.gz"; then `foreign` is ".gz"
};

/// The ending of `path`. Of other endings than those of known files nothing is said: a dot may be
/// in any name ("run.2026-11-22", "eye.v2").
Ending EndingOf(const std::string& path);

/// What tells formats: ".zarr", ".npy", ...
std::vector<std::string> FormatEndings();

/// What is wrong with a destination of such an ending, which holds nothing that is written: a
/// sentence without its subject, "is 'x.png', ...".
std::string WhyForeign(const std::string& path, const Ending& ending);

/// The format of what is written as `destination`: what its ending says, else `asked`, else
/// OME-Zarr. InvalidArgument (<field>.format or <field>.destination) where the two contradict each
/// other, and for the ending of a file of another kind unless a format is asked for: what was to be
/// x.png is not to become x.png.ome.zarr.
absl::StatusOr<Format> FormatFor(const std::string& field, const std::string& destination,
                                 std::optional<Format> asked);

}  // namespace octavo::storage
