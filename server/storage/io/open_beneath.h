#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"

namespace octavo::storage {

/// A file or folder that is open, and where it is, links resolved.
struct OpenedBeneath {
  UniqueFd fd;
  std::string path;
};

/// Opens what clients name. The path, whose links may lead anywhere, must end beneath one of
/// `roots` (or be one); they are the configuration's, nobody else can change where they are.
/// Checking a path and opening it afterwards is not enough: whoever may write in a folder can put a
/// link in the place of a folder in between. So the links are resolved first, and what comes out is
/// opened from the root down without following any link: by openat2, and step by step where the
/// kernel does not have it or a filter refuses it. If the path has changed meanwhile this begins
/// anew, a hundred times at most. `flags` as for open; O_CLOEXEC is added. No roots: anywhere, as
/// open. PermissionDenied (OUTSIDE_ROOTS): the path leads outside, or to nothing outside, or does
/// not stay the same long enough; whether there is something outside is never told. NotFound: there
/// is nothing beneath the roots. PermissionDenied (NO_ACCESS): it may not be opened. Others as
/// ErrnoStatus.
absl::StatusOr<OpenedBeneath> OpenBeneath(const std::string& path,
                                          const std::vector<std::string>& roots, int flags,
                                          mode_t mode = 0);

/// Opens `below` from an open folder down. Follows no link and does not leave the folder. Sets
/// errno.
UniqueFd OpenWithin(const UniqueFd& folder, const std::string& below, int flags);

/// A name of an open file for libraries that open by name.
std::string NameOfOpen(const UniqueFd& fd);

/// For tests: false has the way step by step taken always.
void UseOpenat2(bool use);

}  // namespace octavo::storage
