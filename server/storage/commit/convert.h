#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "server/storage/commit/commit_store.h"
#include "server/storage/formats/writer.h"

namespace octavo::storage {

/// Writes a committed volume (OME-Zarr, .npy or .bin with its .json) again in another format,
/// without a server. The destination gets the format's ending if it has none of them, and it
/// appears under its name only when all of it is on the disk. The voxels are checked against the
/// digest that the volume was sealed with (or, without one, its files against their CRCs). Metadata
/// are carried over. `progress(fraction, disk_bytes)` is called between slabs; Cancelled once it
/// returns false. Errors: as of OpenStored and ResolveOptions; AlreadyExists; NotFound if the
/// destination's directory is not there; DataLoss.
absl::StatusOr<CommitOutcome> Convert(
    const std::string& source, const std::string& destination, const WriterOptions& options,
    const std::function<bool(double fraction, int64_t disk_bytes)>& progress);

/// The format whose ending `path` has, or InvalidArgument ("destination").
absl::StatusOr<Format> FormatOfPath(const std::string& path);

}  // namespace octavo::storage
