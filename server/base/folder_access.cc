#include "server/base/folder_access.h"

#include <unistd.h>

namespace octavo::base {

FolderAccess AccessTo(const std::string& folder) {
  // Reading lists the names; only with X_OK can a file be opened by its name.
  constexpr int kUse = R_OK | X_OK;
  if (::access(folder.c_str(), kUse | W_OK) == 0) return FolderAccess::kReadWrite;
  return ::access(folder.c_str(), kUse) == 0 ? FolderAccess::kRead : FolderAccess::kNone;
}

}  // namespace octavo::base
