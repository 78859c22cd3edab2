#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/json.h"
#include "gpu/base/unique_fd.h"

namespace octavo::storage {

inline constexpr char kManifestName[] = ".octavo-manifest.json";
/// A file takes four values; a volume of small chunks has millions of files.
inline constexpr JsonLimits kManifestLimits = {
    .bytes = size_t{1} << 30, .depth = 8, .values = size_t{1} << 25};

/// The files of a commit, each with size and CRC-32C, so that completeness can be proved after a
/// crash.
struct Manifest {
  struct File {
    std::string path;  // relative
    int64_t bytes = 0;
    uint32_t crc32c = 0;
  };
  std::string commit;  // id: distinguishes our files from foreign files of the same name
  std::vector<File> files;
  int64_t raw_bytes = 0;
  std::string checksum;  // of the voxels

  /// Includes its own CRC. FromJson: DataLoss if the CRC does not match.
  std::string ToJson() const;
  static absl::StatusOr<Manifest> FromJson(const std::string& text);
};

/// Size and CRC of a regular file that is open, read from end to end. DataLoss if that fails.
/// `path` here and below is for messages.
absl::StatusOr<Manifest::File> DescribeFile(const UniqueFd& fd, const std::string& path);
/// DataLoss if the open file has another size or another CRC.
absl::Status VerifyFile(const UniqueFd& fd, const std::string& path, const Manifest::File& file);
/// The manifest in an open folder.
absl::StatusOr<Manifest> ReadManifest(const UniqueFd& folder, const std::string& path);
/// Reads the manifest in an open folder and checks every file of it there. No link in the folder is
/// followed.
absl::StatusOr<Manifest> VerifyDirectory(const UniqueFd& folder, const std::string& path);
/// The same for a folder by its name, which may be a link.
absl::StatusOr<Manifest> VerifyDirectory(const std::string& path);

}  // namespace octavo::storage
