#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"

namespace octavo::storage {

inline constexpr char kManifestName[] = ".octavo-manifest.json";

/// What a commit consists of: every file with size and CRC-32C, so that completeness can be proved after a crash.
struct Manifest {
  struct File {
    std::string path;  // relative
    int64_t bytes = 0;
    uint32_t crc32c = 0;
  };
  std::string commit;  // id: tells our files from anybody else's under the same name
  std::vector<File> files;
  int64_t raw_bytes = 0;
  std::string checksum;  // of the voxels

  /// With a CRC of itself. FromJson: DataLoss if that does not fit.
  std::string ToJson() const;
  static absl::StatusOr<Manifest> FromJson(const std::string& text);
};

/// Size and CRC of the file at `path`, read from end to end. DataLoss if that fails.
absl::StatusOr<Manifest::File> DescribeFile(const std::string& path);
/// DataLoss if the file is missing, of another size, or of another CRC.
absl::Status VerifyFile(const std::string& path, const Manifest::File& file);
/// Reads the manifest in `directory` and checks every file of it there.
absl::StatusOr<Manifest> VerifyDirectory(const std::string& directory);

}  // namespace octavo::storage
