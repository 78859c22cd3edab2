#include "server/storage/json_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/files.h"
#include "server/storage/writer.h"

namespace octavo::storage {

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return ErrnoStatus(errno, "opening", path);
  return ReadJsonFile(fd.get(), path, limits);
}

absl::StatusOr<nlohmann::json> ReadJsonFile(int fd, const std::string& path, const JsonLimits& limits) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "opening", path);
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is no regular file"));
  if (info.st_size > static_cast<int64_t>(limits.bytes))
    return absl::DataLossError(absl::StrCat(path, " has ", info.st_size, " bytes; allowed at most ", limits.bytes));
  std::string text(static_cast<size_t>(info.st_size), '\0');
  OCTAVO_RETURN_IF_ERROR(ReadAllAt(fd, path, text.data(), text.size(), 0));
  auto parsed = ParseJson(text, limits);
  if (!parsed.ok()) return absl::DataLossError(absl::StrCat(path, " ", parsed.status().message()));
  return parsed;
}

}  // namespace octavo::storage
