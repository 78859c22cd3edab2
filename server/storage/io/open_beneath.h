#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"

namespace octavo::storage {

/// An open file or folder, and its path with links resolved.
struct OpenedBeneath {
  UniqueFd fd;
  std::string path;
};

/// Opens paths that clients name. The path, whose links may lead anywhere, must end beneath one of
/// `roots` (or be one); the roots come from the configuration, so no client can change their
/// places. Checking a path and opening it afterwards is not enough: a user who may write in a
/// folder can replace a folder by a link in between. Therefore the links are resolved first, and
/// the result is opened from the root down without following any link: by openat2, and step by step
/// if the kernel does not have it or a filter refuses it. If the path has changed meanwhile, this
/// starts again, a hundred times at most. `flags` as for open; O_CLOEXEC is added. No roots:
/// anywhere, as open. PermissionDenied (OUTSIDE_ROOTS): the path leads outside, whether or not a
/// file exists there, or keeps changing. NotFound: there is no such file beneath the roots.
/// PermissionDenied (NO_ACCESS): the server may not open it. Others as ErrnoStatus.
absl::StatusOr<OpenedBeneath> OpenBeneath(const std::string& path,
                                          const std::vector<std::string>& roots, int flags,
                                          mode_t mode = 0);

/// Opens `below` from an open folder down. Follows no link and does not leave the folder. Sets
/// errno.
UniqueFd OpenWithin(const UniqueFd& folder, const std::string& below, int flags);

/// A path to an open file, for libraries that open by name.
std::string NameOfOpen(const UniqueFd& fd);

/// For tests: false forces opening step by step.
void UseOpenat2(bool use);

}  // namespace octavo::storage
