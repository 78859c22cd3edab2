#include <climits>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gpu/base/status.h"
#include "server/storage/commit_store.h"
#include "server/storage/files.h"

namespace octavo::storage {
namespace {

constexpr char kField[] = "options.destination";

std::string RealPath(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  const std::string out = resolved == nullptr ? "" : resolved;
  std::free(resolved);
  return out;
}

}  // namespace

absl::StatusOr<std::string> ResolveDestination(const std::vector<std::string>& roots, const std::string& destination) {
  if (destination.empty()) return InvalidField(kField, "is empty; give a path relative to a storage root");
  if (destination.find('\0') != std::string::npos) return InvalidField(kField, "holds a NUL character");
  if (destination.size() > PATH_MAX / 2) return InvalidField(kField, absl::StrCat("has ", destination.size(), " characters; allowed ", PATH_MAX / 2));
  if (roots.empty()) return absl::FailedPreconditionError("this server has no storage roots; set storage.roots");
  for (const absl::string_view part : absl::StrSplit(destination, '/')) {
    if (part == "..") return InvalidField(kField, absl::StrCat("'", destination, "' holds '..'; allowed are paths below ", absl::StrJoin(roots, ", ")));
    if (absl::StartsWith(part, ".octavo-")) return InvalidField(kField, "uses a name that starts with .octavo-, which is reserved");
    if (part.size() > 200) return InvalidField(kField, absl::StrCat("has a part of ", part.size(), " characters; allowed 200"));
  }
  std::string path = destination[0] == '/' ? destination : absl::StrCat(roots[0], "/", destination);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  // The deepest part that exists decides where the path really leads.
  std::string existing = ParentOf(path), rest = BaseOf(path);
  std::string real;
  while ((real = RealPath(existing)).empty() && existing != "/") {
    rest = absl::StrCat(BaseOf(existing), "/", rest);
    existing = ParentOf(existing);
  }
  const std::string full = absl::StrCat(real == "/" ? "" : real, "/", rest);
  for (const std::string& root : roots) {
    std::string real_root = RealPath(root);
    if (real_root.empty()) real_root = root;
    if (absl::StartsWith(full, absl::StrCat(real_root, "/")) && (real == real_root || absl::StartsWith(real, absl::StrCat(real_root, "/")))) return full;
  }
  return InvalidField(kField, absl::StrCat("'", destination, "' lies outside the storage roots ", absl::StrJoin(roots, ", ")));
}

}  // namespace octavo::storage
