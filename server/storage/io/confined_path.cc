#include "server/storage/io/confined_path.h"

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {

using storage::IsInside;
using storage::RealPath;

namespace {

std::string Named(const std::vector<std::string>& roots) {
  return absl::StrCat("the replay roots ", absl::StrJoin(roots, ", "),
                      " (storage.replay_roots of the server's configuration)");
}

}  // namespace

absl::Status OutsideRoots(const std::string& field, const std::string& path,
                          const std::vector<std::string>& roots) {
  return WithInfo(InvalidField(field, absl::StrCat("'", path, "' lies outside ", Named(roots))),
                  {.reason = Reason::kOutsideRoots, .field = field, .numbers = {}});
}

absl::Status NoAccess(const std::string& field, const std::string& path, const std::string& what) {
  return WithInfo(absl::PermissionDeniedError(absl::StrCat(field, ": '", path, "' ", what)),
                  {.reason = Reason::kNoAccess, .field = field, .numbers = {}});
}

absl::StatusOr<ConfinedPath> ConfinePath(const std::string& path,
                                         const std::vector<std::string>& roots,
                                         const std::string& field) {
  if (path.empty()) return InvalidField(field, "is empty");
  if (path.find('\0') != std::string::npos) return InvalidField(field, "holds a zero byte");
  if (roots.empty()) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        field, ": this server has no replay roots; set storage.replay_roots")),
                    {.reason = Reason::kFailedPrecondition, .field = field, .numbers = {}});
  }
  bool inside = false, denied = false;
  for (const std::string& root : roots) {
    const std::string real_root = RealPath(root);
    if (real_root.empty()) continue;
    const std::string candidate = path[0] == '/' ? path : absl::StrCat(real_root, "/", path);
    // Compare the path as text first, so that the answer does not reveal whether a file outside
    // exists.
    const std::string plain = std::filesystem::path(candidate).lexically_normal().string();
    if (!IsInside(plain, std::filesystem::path(absl::StrCat(root, "/."))
                             .lexically_normal()
                             .parent_path()
                             .string()) &&
        !IsInside(plain, real_root)) {
      continue;
    }
    const std::string real = RealPath(candidate);
    if (real.empty()) {
      inside = true;
      denied = denied || errno == EACCES;
      continue;
    }
    if (IsInside(real, real_root)) return ConfinedPath{real, real_root};
  }
  if (!inside) return OutsideRoots(field, path, roots);
  if (denied) return NoAccess(field, path, "may not be read");
  return WithInfo(
      absl::NotFoundError(absl::StrCat(field, ": no file '", path, "' under ", Named(roots))),
      {.reason = Reason::kNoFile, .field = field, .numbers = {}});
}

}  // namespace octavo::storage
