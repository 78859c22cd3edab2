#include "server/storage/io/open_beneath.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

constexpr int kTries = 100;
std::atomic<bool> use_openat2{true};

/// Opens from `folder` down, part by part, following no link. Sets errno.
UniqueFd OpenStepByStep(int folder, const std::string& below, int flags, mode_t mode) {
  const std::vector<std::string> parts = absl::StrSplit(below, '/', absl::SkipEmpty());
  UniqueFd at;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    at = UniqueFd(::openat(at ? at.get() : folder, parts[i].c_str(),
                           O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!at) return at;
  }
  return UniqueFd(::openat(at ? at.get() : folder, parts.empty() ? "." : parts.back().c_str(),
                           flags | O_NOFOLLOW | O_CLOEXEC, mode));
}

UniqueFd OpenWithoutLinks(int folder, const std::string& below, int flags, mode_t mode) {
  if (use_openat2) {
    open_how how{};
    how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
    how.mode = (flags & O_CREAT) != 0 ? mode : 0;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    UniqueFd fd(static_cast<int>(
        ::syscall(SYS_openat2, folder, below.empty() ? "." : below.c_str(), &how, sizeof how)));
    // A filter of system calls answers EPERM, and the kernel EINVAL to flags that open ignores.
    if (fd || (errno != ENOSYS && errno != EPERM && errno != EINVAL && errno != E2BIG)) return fd;
  }
  return OpenStepByStep(folder, below, flags, mode);
}

/// As OpenWithoutLinks, but waits for a regular file that another program has leased (a file
/// server's oplock): O_NONBLOCK, which avoids waiting for a pipe, makes opening a leased file fail
/// with EAGAIN.
UniqueFd OpenEvenIfLeased(int folder, const std::string& below, int flags, mode_t mode) {
  UniqueFd fd = OpenWithoutLinks(folder, below, flags, mode);
  if (fd || errno != EAGAIN || (flags & O_NONBLOCK) == 0) return fd;
  const UniqueFd known = OpenWithoutLinks(folder, below, O_PATH, 0);
  struct stat info {};
  if (!known || ::fstat(known.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    errno = EAGAIN;
    return fd;
  }
  return UniqueFd(
      ::open(NameOfOpen(known).c_str(), (flags & ~(O_NONBLOCK | O_CREAT | O_EXCL)) | O_CLOEXEC));
}

absl::Status Outside() {
  return WithInfo(
      absl::PermissionDeniedError("leads outside of the configured roots, or to nothing"),
      {.reason = Reason::kOutsideRoots, .field = "", .numbers = {}});
}

absl::Status Refused(int error, const std::string& path) {
  const std::string name = BaseOf(path);
  if (error == ENOENT || error == ENOTDIR)
    return WithInfo(absl::NotFoundError(absl::StrCat("no file ", name)),
                    {.reason = Reason::kNoFile, .field = "", .numbers = {}});
  if (error == EACCES || error == EPERM)
    return WithInfo(absl::PermissionDeniedError(absl::StrCat(name, " may not be opened")),
                    {.reason = Reason::kNoAccess, .field = "", .numbers = {}});
  return ErrnoStatus(error, "opening", name);
}

/// The innermost root that a path without links is or lies in; "" if there is none.
std::string RootAround(const std::string& real, const std::vector<std::string>& roots) {
  std::string innermost;
  for (const std::string& root : roots) {
    const std::string at = RealPath(root);
    if (!at.empty() && (real == at || IsInside(real, at)) && at.size() > innermost.size())
      innermost = at;
  }
  return innermost;
}

}  // namespace

absl::StatusOr<OpenedBeneath> OpenBeneath(const std::string& path,
                                          const std::vector<std::string>& roots, int flags,
                                          mode_t mode) {
  if (roots.empty()) {
    UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
    if (!fd) return Refused(errno, path);
    return OpenedBeneath{.fd = std::move(fd), .path = path};
  }
  const bool creates = (flags & O_CREAT) != 0;
  for (int i = 0; i < kTries; ++i) {
    // A file to be created has no real path yet, but its folder has.
    std::string real = RealPath(creates ? ParentOf(path) : path);
    const int error = errno;
    if (real.empty()) {
      // The deepest existing part decides; a dangling link has no real path.
      std::string there = path;
      while (there != "/" && there != "." && !PathExists(there)) there = ParentOf(there);
      if (RootAround(RealPath(there), roots).empty()) return Outside();
      return Refused(error, path);
    }
    if (creates) real = absl::StrCat(real == "/" ? "" : real, "/", BaseOf(path));
    const std::string root = RootAround(real, roots);
    if (root.empty()) return Outside();
    const UniqueFd folder(::open(root.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
      return Refused(errno, path);
    if (!folder) continue;
    UniqueFd fd = OpenEvenIfLeased(
        folder.get(), real.substr(std::min(real.size(), root == "/" ? 1 : root.size() + 1)), flags,
        mode);
    if (fd) return OpenedBeneath{.fd = std::move(fd), .path = std::move(real)};
    // The path changed meanwhile: a part became a link or disappeared.
    if (errno != ELOOP && errno != EXDEV && errno != ENOENT && errno != ENOTDIR && errno != EAGAIN)
      return Refused(errno, path);
  }
  return Outside();
}

UniqueFd OpenWithin(const UniqueFd& folder, const std::string& below, int flags) {
  const std::vector<absl::string_view> parts = absl::StrSplit(below, '/');
  if (parts[0].empty() || std::find(parts.begin(), parts.end(), "..") !=
                              parts.end()) {  // opening step by step would accept it
    errno = EXDEV;
    return {};
  }
  return OpenEvenIfLeased(folder.get(), below, flags, 0);
}

std::string NameOfOpen(const UniqueFd& fd) { return absl::StrCat("/proc/self/fd/", fd.get()); }

void UseOpenat2(bool use) { use_openat2 = use; }

}  // namespace octavo::storage
