#pragma once

#include <string>

#include "gpu/base/unique_fd.h"
#include "server/storage/projections/internal.h"

namespace octavo::storage {

/// Frames that lie in a file in one piece and unencoded, from `offset` on. Reads run in parallel.
class PlainFrames final : public FrameArray {
 public:
  /// `path`: of the file, for errors. The caller has checked that the file holds all frames.
  PlainFrames(std::string path, UniqueFd file, int64_t offset)
      : path_(std::move(path)), file_(std::move(file)), offset_(offset) {}

  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                    char* out) override;

 private:
  absl::Status ReadAt(char* out, int64_t count, int64_t first) const;

  const std::string path_;
  const UniqueFd file_;
  const int64_t offset_;
};

}  // namespace octavo::storage
