#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/storage/commit/commit_store.h"
#include "server/storage/formats/input_volume.h"
#include "server/storage/formats/volume_input.h"
#include "server/storage/formats/writer.h"

namespace octavo::storage {

/// How the source of a conversion is read. Nothing needs to be said about what a commit wrote.
struct ConvertSource {
  VolumeInputOptions input;
  InputVolumeOptions volume;
};

/// What a conversion wrote, and what may not be as intended: a sentence each. Those known before it
/// are in the metadata of the new file, too.
struct ConvertOutcome : CommitOutcome {
  std::vector<std::string> warnings;
};

/// Writes a volume again in another format, without a server: one that a commit wrote, or a file of
/// any kind that OpenVolumeInput reads. The destination gets the format's ending if it has none of
/// them, and it appears under its name only when all of it is on the disk. The voxels of a commit
/// are checked against the digest that the volume was sealed with (or, without one, its files
/// against their CRCs); its metadata are carried over. `progress(fraction, disk_bytes)` is called
/// between slabs; Cancelled once it returns false. Errors: as of OpenVolumeInput, InputVolume::Make
/// and ResolveOptions; AlreadyExists; NotFound if the destination's directory is not there;
/// DataLoss.
absl::StatusOr<ConvertOutcome> Convert(
    const std::string& source, const std::string& destination, const WriterOptions& options,
    const std::function<bool(double fraction, int64_t disk_bytes)>& progress,
    const ConvertSource& from = {});

/// The format whose ending `path` has, or InvalidArgument ("destination").
absl::StatusOr<Format> FormatOfPath(const std::string& path);

}  // namespace octavo::storage
