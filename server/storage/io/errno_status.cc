#include "server/storage/io/errno_status.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::storage {

absl::Status ErrnoStatus(int error, const std::string& doing, const std::string& path) {
  const std::string text = absl::StrCat(doing, " ", path, ": ", std::strerror(error));
  const auto make = [&](absl::Status status, Reason reason) {
    return WithInfo(std::move(status),
                    {.reason = reason, .field = "", .numbers = {{"errno", absl::StrCat(error)}}});
  };
  switch (error) {
    case EFBIG:  // also by RLIMIT_FSIZE
    case ENOSPC:
    case EDQUOT: return make(absl::ResourceExhaustedError(text), Reason::kDiskFull);
    case EMFILE:
    case ENFILE: return make(absl::ResourceExhaustedError(text), Reason::kNoDescriptors);
    case EACCES:
    case EPERM: return make(absl::PermissionDeniedError(text), Reason::kNoAccess);
    case EROFS: return make(absl::PermissionDeniedError(text), Reason::kReadOnly);
    case EEXIST:
    case ENOTEMPTY: return make(absl::AlreadyExistsError(text), Reason::kDestinationExists);
    case ENOENT: return make(absl::NotFoundError(text), Reason::kNoPath);
    case ENOTDIR:
      return make(absl::InvalidArgumentError(absl::StrCat(text, " (a part of the path is a file)")),
                  Reason::kNotAFolder);
    case ENAMETOOLONG: return make(absl::InvalidArgumentError(text), Reason::kNameTooLong);
    case ELOOP: return make(absl::InvalidArgumentError(text), Reason::kLinks);
    default: return make(absl::InternalError(text), Reason::kIoError);
  }
}

}  // namespace octavo::storage
