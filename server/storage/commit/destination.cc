#include <cerrno>
#include <climits>
#include <sys/stat.h>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "gpu/base/status.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

constexpr char kField[] = "options.destination";
// Each folder is made, synced and perhaps removed by itself, while the commit cannot be cancelled.
constexpr size_t kMostFolders = 64;

}  // namespace

absl::StatusOr<std::string> ResolveDestination(const std::vector<std::string>& roots,
                                               const std::string& destination) {
  if (destination.empty())
    return InvalidField(kField, "is empty; give a path relative to a storage root");
  if (destination.size() > PATH_MAX / 2)
    return InvalidField(
        kField, absl::StrCat("has ", destination.size(), " characters; allowed ", PATH_MAX / 2));
  if (roots.empty())
    return absl::FailedPreconditionError("this server has no storage roots; set storage.roots");
  for (const char c : destination) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      return InvalidField(kField, "holds a control character");
  }
  try {
    (void)nlohmann::json(destination).dump();
  } catch (const nlohmann::json::exception&) {  // the journal could not store it
    return InvalidField(kField, "is not UTF-8");
  }
  std::vector<absl::string_view> parts;  // a/./b and a//b are a/b: one file has one spelling
  for (const absl::string_view part : absl::StrSplit(destination, '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    parts.push_back(part);
    if (part == "..")
      return InvalidField(kField,
                          absl::StrCat("'", destination, "' holds '..'; allowed are paths below ",
                                       absl::StrJoin(roots, ", ")));
    // " .npy" is a name that somebody forgot to give.
    const absl::string_view stem = part.substr(0, part.find('.', 1));
    if (absl::StripAsciiWhitespace(stem).empty())
      return InvalidField(kField, absl::StrCat("'", destination,
                                               "' has a name of blanks; give a path relative to a "
                                               "storage root"));
    if (absl::StartsWith(part, ".octavo-"))
      return InvalidField(kField, "uses a name that starts with .octavo-, which is reserved");
    if (part.size() > 200)
      return InvalidField(kField,
                          absl::StrCat("has a part of ", part.size(), " characters; allowed 200"));
  }
  if (parts.size() > kMostFolders) {
    return InvalidField(kField, absl::StrCat("leads through ", parts.size() - 1,
                                             " folders; allowed are ", kMostFolders - 1));
  }
  if (parts.empty()) return InvalidField(kField, absl::StrCat("'", destination, "' names no file"));
  std::string base;
  if (destination[0] != '/') {
    base = RealPath(roots[0]);
    if (base.empty()) return ErrnoStatus(errno, "opening storage root", roots[0]);
    if (base == "/") base.clear();
  }
  const std::string path = absl::StrCat(base, "/", absl::StrJoin(parts, "/"));
  // Resolve the deepest part that exists: it determines where the path really leads.
  std::string existing = ParentOf(path), rest = BaseOf(path);
  std::string real;
  // (If a name exists but leads nowhere, it becomes part of `rest`; making the directories then
  // refuses it.)
  while ((real = RealPath(existing)).empty() && existing != "/") {
    rest = absl::StrCat(BaseOf(existing), "/", rest);
    existing = ParentOf(existing);
  }
  struct stat info {};
  const bool is_file = ::stat(real.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
  const std::string full = absl::StrCat(real == "/" ? "" : real, "/", rest);
  for (const std::string& root : roots) {
    const std::string real_root = RealPath(root);
    if (real_root.empty() || (real != real_root && !IsInside(real, real_root))) continue;
    if (is_file)
      return InvalidField(kField, absl::StrCat("'", destination, "' leads through ", real,
                                               ", which is a file; allowed are folders"));
    return full;
  }
  const std::string itself = RealPath(path);
  for (const std::string& root : roots) {
    if (!itself.empty() && itself == RealPath(root))
      return InvalidField(kField, absl::StrCat("'", destination,
                                               "' is a storage root itself; allowed is a name "
                                               "below it, as ",
                                               itself == "/" ? "" : itself, "/name"));
  }
  return InvalidField(kField, absl::StrCat("'", destination, "' lies outside the storage roots ",
                                           absl::StrJoin(roots, ", ")));
}

}  // namespace octavo::storage
