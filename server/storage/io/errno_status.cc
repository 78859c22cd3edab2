#include "server/storage/io/errno_status.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::storage {

absl::Status ErrnoStatus(int error, const std::string& doing, const std::string& path) {
  const std::string text = absl::StrCat(doing, " ", path, ": ", std::strerror(error));
  const auto make = [&](absl::Status status, const char* reason) {
    return WithInfo(std::move(status),
                    {.reason = reason, .field = "", .numbers = {{"errno", absl::StrCat(error)}}});
  };
  switch (error) {
    case ENOSPC:
    case EDQUOT: return make(absl::ResourceExhaustedError(text), "DISK_FULL");
    case EMFILE:
    case ENFILE: return make(absl::ResourceExhaustedError(text), "NO_DESCRIPTORS");
    case EACCES:
    case EPERM:
    case EROFS: return make(absl::PermissionDeniedError(text), "READ_ONLY");
    case EEXIST:
    case ENOTEMPTY: return make(absl::AlreadyExistsError(text), "DESTINATION_EXISTS");
    case ENOENT: return make(absl::NotFoundError(text), "NO_PATH");
    case ENOTDIR:
      return make(absl::InvalidArgumentError(absl::StrCat(text, " (a part of the path is a file)")),
                  "NOT_A_FOLDER");
    case ENAMETOOLONG: return make(absl::InvalidArgumentError(text), "NAME_TOO_LONG");
    case ELOOP: return make(absl::InvalidArgumentError(text), "LINKS");
    default: return make(absl::InternalError(text), "IO_ERROR");
  }
}

}  // namespace octavo::storage
