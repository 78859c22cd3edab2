#pragma once

#include <string>

#include "absl/status/status.h"

namespace octavo::storage {

/// Status for a failed system call: ENOSPC, EDQUOT → ResourceExhausted (DISK_FULL); EMFILE, ENFILE
/// → ResourceExhausted (NO_DESCRIPTORS); EACCES, EPERM, EROFS → PermissionDenied (READ_ONLY);
/// EEXIST → AlreadyExists; ENOENT → NotFound; else Internal (IO_ERROR).
absl::Status ErrnoStatus(int error, const std::string& doing, const std::string& path);

}  // namespace octavo::storage
