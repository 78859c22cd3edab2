#include "server/storage/io/own_file.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo::storage {

std::string WhyNotOwn(const struct stat& info, const std::string& path, const char* mode,
                      RootToo root) {
  const bool folder = S_ISDIR(info.st_mode);
  const std::string allowed =
      absl::StrCat("; allowed is a ", folder ? "folder" : "file", " of user ", ::geteuid(),
                   ", as whom octavod runs, ", folder ? "into which" : "which",
                   " nobody else may write (look at what is in it, then: ");
  if (info.st_uid != ::geteuid() && (root == RootToo::kNo || info.st_uid != 0))
    return absl::StrCat(path, " belongs to user ", info.st_uid, allowed, "chown ", ::geteuid(),
                        " '", path, "')");
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return absl::StrCat(path, " has mode ", absl::StrFormat("%04o", info.st_mode & 07777),
                        " and can be written by others", allowed, "chmod ", mode, " '", path, "')");
  return "";
}

}  // namespace octavo::storage
