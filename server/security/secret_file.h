#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Files that only their owner may read or write. Every message names the file and what is allowed.
namespace octavo::security {

inline constexpr size_t kMostSecretFileBytes = 4 << 20;

/// Whose files a reader takes. A file that another user may change is no source of rights.
enum class Owners { kThisUserOrRoot, kAnyIfRootReads };

/// Reads a regular file (no link) of such an owner that nobody else may read or write (mode 0600,
/// or less; a credential of systemd, which belongs to root, may have mode 0440, because there the
/// bits of the group stand for the list of users that systemd wrote). NotFound if there is none;
/// FailedPrecondition if it is not such a file; PermissionDenied if this program may not open it.
/// Unavailable if the system cannot read it now (EIO, EMFILE): that says nothing of the file.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path,
                                           Owners owners = Owners::kThisUserOrRoot);

/// Reads a regular file that is no secret but decides whom the server believes (certificates): of
/// such an owner, and nobody else may write it. A link to one is allowed. Errors as above.
absl::StatusOr<std::string> ReadTrustedFile(const std::string& path);

/// Makes a file of mode 0600; AlreadyExists if there is one.
absl::Status WriteNewSecretFile(const std::string& path, absl::string_view bytes);

/// Replaces the content of a file, atomically: `change` gets what the file holds now and returns
/// what it shall hold; its error changes nothing. Two programs that change one file wait for each
/// other. The file keeps its owner; its mode becomes 0600. Without a file, and if `create`, it is
/// made, and `change` gets an empty text; if root makes it, it belongs to the owner of its folder,
/// so that the daemon can read what an administrator has made beside the daemon's own files.
absl::Status ChangeSecretFile(
    const std::string& path, bool create,
    const std::function<absl::StatusOr<std::string>(const std::string&)>& change);

/// Puts a file with these bytes (mode 0600) in the place of what has this name, atomically,
/// whatever it holds: for files that one program alone writes. ResourceExhausted (DISK_FULL).
absl::Status ReplaceSecretFile(const std::string& path, absl::string_view bytes);

}  // namespace octavo::security
