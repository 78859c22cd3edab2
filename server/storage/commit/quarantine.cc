#include "server/storage/commit/quarantine.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/commit/publish.h"
#include "server/storage/io/files.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

namespace fs = std::filesystem;

std::string FolderOf(const std::string& root) {
  const std::string real = RealPath(root);
  return absl::StrCat(real == "/" ? "" : real, "/", kQuarantineName);
}

/// Opens it if it is a folder of this user.
UniqueFd OpenQuarantine(const std::string& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || info.st_uid != ::geteuid()) return {};
  return fd;
}

double SecondsOf(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Entry {
  std::string name;
  int64_t bytes = 0;
  double since = 0;  // s since 1970
};

int64_t BytesOfTree(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return 0;
  int64_t bytes = S_ISREG(info.st_mode) ? info.st_size : 0;
  if (!S_ISDIR(info.st_mode)) return bytes;
  std::error_code error;
  for (fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied,
                                           error);
       !error && at != fs::end(at); at.increment(error)) {
    std::error_code ignored;
    if (at->symlink_status(ignored).type() == fs::file_type::regular)
      bytes += static_cast<int64_t>(at->file_size(ignored));
  }
  return bytes;
}

std::vector<Entry> EntriesOf(const UniqueFd& quarantine) {
  std::vector<Entry> entries;
  std::error_code error;
  const std::string folder = NameOfOpen(quarantine);
  for (fs::directory_iterator at(folder, error); !error && at != fs::end(at); at.increment(error)) {
    const std::string name = at->path().filename().string(), path = absl::StrCat(folder, "/", name);
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) continue;
    // Its last status change is the rename into the quarantine, because no process changes it here.
    entries.push_back({.name = name, .bytes = BytesOfTree(path), .since = SecondsOf(info.st_ctim)});
  }
  return entries;
}

}  // namespace

std::string MoveToQuarantine(const std::vector<std::string>& roots, const UniqueFd& from,
                             const std::string& path) {
  const std::string root = RootOf(roots, path);
  if (root.empty()) return "";
  const std::string folder = FolderOf(root);
  (void)MakeDirectory(folder);
  const UniqueFd quarantine = OpenQuarantine(folder);
  if (!quarantine) return "";
  std::string name = BaseOf(path);
  for (int i = 1; PathExists(absl::StrCat(NameOfOpen(quarantine), "/", name)); ++i)
    name = absl::StrCat(BaseOf(path), ".", i);
  const bool moved = RenameNoReplace(absl::StrCat(NameOfOpen(from), "/", BaseOf(path)),
                                     absl::StrCat(NameOfOpen(quarantine), "/", name))
                         .ok();
  return moved ? absl::StrCat(folder, "/", name) : "";
}

QuarantineUse UseOfQuarantine(const std::string& root) {
  QuarantineUse use;
  const UniqueFd quarantine = OpenQuarantine(FolderOf(root));
  if (!quarantine) return use;
  for (const Entry& entry : EntriesOf(quarantine)) {
    ++use.entries;
    use.bytes += entry.bytes;
  }
  return use;
}

std::vector<std::string> PruneQuarantine(const std::string& root, const QuarantineLimits& limits) {
  std::vector<std::string> lines;
  const std::string folder = FolderOf(root);
  const UniqueFd quarantine = OpenQuarantine(folder);
  if (!quarantine) return lines;
  std::vector<Entry> entries = EntriesOf(quarantine);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.since, a.name) < std::tie(b.since, b.name);
  });
  auto count = std::ssize(entries);
  int64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  for (const Entry& entry : entries) {
    const double days = (SecondsOf(now) - entry.since) / 86400;
    const std::string why =
        limits.days > 0 && days > limits.days ? absl::StrCat("after ", std::floor(days), " days")
        : limits.entries > 0 && count > limits.entries ? absl::StrCat("one of ", count, " entries")
        : limits.bytes > 0 && bytes > limits.bytes     ? absl::StrCat("of ", bytes, " bytes in all")
                                                       : "";
    if (why.empty() || !RemoveTree(absl::StrCat(NameOfOpen(quarantine), "/", entry.name))) continue;
    --count;
    bytes -= entry.bytes;
    lines.push_back(
        absl::StrCat(folder, "/", entry.name, ": removed from the quarantine (", why, ")"));
  }
  return lines;
}

int64_t StampOfQuarantine(const std::string& root) {
  struct stat info {};
  if (::lstat(FolderOf(root).c_str(), &info) != 0) return 0;
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace octavo::storage
