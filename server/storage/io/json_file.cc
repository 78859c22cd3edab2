#include "server/storage/io/json_file.h"

#include <cerrno>
#include <fcntl.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return ErrnoStatus(errno, "opening", path);
  return ReadJsonFile(fd.get(), path, limits);
}

absl::StatusOr<nlohmann::json> ReadJsonFile(int fd, const std::string& path,
                                            const JsonLimits& limits) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(fd, path, limits.bytes));
  auto parsed = ParseJson(text, limits);
  if (!parsed.ok()) return absl::DataLossError(absl::StrCat(path, " ", parsed.status().message()));
  return parsed;
}

}  // namespace octavo::storage
