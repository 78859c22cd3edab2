#include "server/security/secret_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/security/credential.h"

namespace octavo::security {
namespace {

absl::Status Failed(const std::string& path, const char* doing, int error) {
  const std::string text = absl::StrCat(path, ": ", doing, ": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EEXIST) return absl::AlreadyExistsError(text);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return WithInfo(absl::ResourceExhaustedError(text),
                    {.reason = Reason::kDiskFull, .field = "", .numbers = {}});
  if (error == EACCES || error == EPERM || error == EROFS)
    return absl::PermissionDeniedError(
        absl::StrCat(text, " (this program runs as user ", ::geteuid(), ")"));
  return absl::UnavailableError(text);
}

absl::Status NotPrivate(const std::string& path, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", what));
}

std::string ModeText(const struct stat& info) {
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
  return mode;
}

absl::Status CheckOwner(const std::string& path, const struct stat& info, Owners owners) {
  if (!S_ISREG(info.st_mode)) return NotPrivate(path, "is no regular file");
  const bool any = owners == Owners::kAnyIfRootReads && ::geteuid() == 0;
  if (!any && info.st_uid != ::geteuid() && info.st_uid != 0) {
    return NotPrivate(path, absl::StrCat("belongs to user ", info.st_uid, "; allowed are user ",
                                         ::geteuid(), ", as whom this program runs, and root"));
  }
  if (info.st_size > static_cast<off_t>(kMostSecretFileBytes)) {
    return NotPrivate(
        path, absl::StrCat("has ", info.st_size, " bytes; allowed are ", kMostSecretFileBytes));
  }
  return absl::OkStatus();
}

// Whether others may know or change what the open file holds.
absl::Status CheckPrivate(const std::string& path, const struct stat& info, Owners owners) {
  OCTAVO_RETURN_IF_ERROR(CheckOwner(path, info, owners));
  const mode_t others = info.st_uid == 0 && IsCredential(path) ? 037 : 077;
  if ((info.st_mode & others) != 0) {
    return NotPrivate(path, absl::StrCat("has mode ", ModeText(info),
                                         ", so that others may read or change it; allowed is 0600 "
                                         "(chmod 600)"));
  }
  return absl::OkStatus();
}

// Whether others may change what the open file holds.
absl::Status CheckTrusted(const std::string& path, const struct stat& info) {
  OCTAVO_RETURN_IF_ERROR(CheckOwner(path, info, Owners::kThisUserOrRoot));
  if ((info.st_mode & 022) != 0) {
    return NotPrivate(path, absl::StrCat("has mode ", ModeText(info),
                                         ", so that others may change it; allowed is 0644 (chmod "
                                         "go-w)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> OpenPrivate(const std::string& path, Owners owners, struct stat* info) {
  // O_NONBLOCK: a FIFO of this name must not hold the program up.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ELOOP)
    return NotPrivate(path, "is a link; allowed is the name of the file itself");
  if (!fd) return Failed(path, "cannot be opened", errno);
  if (::fstat(fd.get(), info) != 0) return Failed(path, "cannot be examined", errno);
  OCTAVO_RETURN_IF_ERROR(CheckPrivate(path, *info, owners));
  return fd;
}

absl::StatusOr<std::string> ReadAll(const std::string& path, const UniqueFd& fd) {
  std::string text;
  char part[16384];
  if (const int injected = Failpoint("secret_read"); injected != 0)
    return Failed(path, "cannot be read", injected);
  for (off_t at = 0;;) {
    const ssize_t got = ::pread(fd.get(), part, sizeof part, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(path, "cannot be read", errno);
    if (got == 0) return text;
    text.append(part, static_cast<size_t>(got));
    at += got;
    if (text.size() > kMostSecretFileBytes)
      return NotPrivate(path, absl::StrCat("has more than ", kMostSecretFileBytes, " bytes"));
  }
}

absl::Status WriteAll(const std::string& path, const UniqueFd& fd, absl::string_view bytes) {
  if (const int injected = Failpoint("secret_write"); injected != 0)
    return Failed(path, "cannot be written", injected);
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed(path, "cannot be written", errno);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  // What a full disk or a crash takes away must not have been reported as written.
  if (::fsync(fd.get()) != 0) return Failed(path, "cannot be written", errno);
  return absl::OkStatus();
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status SyncFolder(const std::string& path) {
  const std::string folder = FolderOf(path);
  if (const int injected = Failpoint("secret_sync"); injected != 0)
    return Failed(folder, "cannot be written", injected);
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return Failed(folder, "cannot be written", errno);
  return absl::OkStatus();
}

// Makes the file, empty, if there is none.
absl::Status MakeMissing(const std::string& path) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return errno == EEXIST ? absl::OkStatus() : Failed(path, "cannot be made", errno);
  struct stat folder {};
  if (::geteuid() == 0 && ::stat(FolderOf(path).c_str(), &folder) == 0 &&
      ::fchown(fd.get(), folder.st_uid, folder.st_gid) != 0)
    return Failed(path, "cannot be given to the owner of its folder", errno);
  return absl::OkStatus();
}

// Makes a new file of the bytes, lets `prepare` change it, and puts it in the place of `path`.
absl::Status Replace(
    const std::string& path, absl::string_view bytes,
    const std::function<absl::Status(const std::string&, const UniqueFd&)>& prepare) {
  const std::string temporary = absl::StrCat(path, ".new");
  ::unlink(temporary.c_str());  // of a program that was ended
  UniqueFd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return Failed(temporary, "cannot be made", errno);
  absl::Cleanup tidy = [&] { ::unlink(temporary.c_str()); };
  OCTAVO_RETURN_IF_ERROR(prepare(temporary, fd));
  OCTAVO_RETURN_IF_ERROR(WriteAll(temporary, fd, bytes));
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return Failed(path, "cannot be replaced", errno);
  std::move(tidy).Cancel();
  return SyncFolder(path);
}

// Opens the file and locks it for changes.
absl::StatusOr<UniqueFd> OpenLocked(const std::string& path, struct stat* info) {
  for (;;) {
    // Root may change the file of another user: the daemon's.
    OCTAVO_ASSIGN_OR_RETURN(UniqueFd fd, OpenPrivate(path, Owners::kAnyIfRootReads, info));
    while (::flock(fd.get(), LOCK_EX) != 0) {
      if (errno != EINTR) return Failed(path, "cannot be locked", errno);
    }
    // Another program may have put a new file in its place meanwhile.
    struct stat now {};
    if (::lstat(path.c_str(), &now) == 0 && now.st_ino == info->st_ino &&
        now.st_dev == info->st_dev)
      return fd;
  }
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, Owners owners) {
  struct stat info {};
  OCTAVO_ASSIGN_OR_RETURN(const UniqueFd fd, OpenPrivate(path, owners, &info));
  return ReadAll(path, fd);
}

absl::StatusOr<std::string> ReadTrustedFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return Failed(path, "cannot be opened", errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Failed(path, "cannot be examined", errno);
  OCTAVO_RETURN_IF_ERROR(CheckTrusted(path, info));
  return ReadAll(path, fd);
}

absl::Status WriteNewSecretFile(const std::string& path, absl::string_view bytes) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return Failed(path, "cannot be made", errno);
  if (absl::Status written = WriteAll(path, fd, bytes); !written.ok()) {
    ::unlink(path.c_str());
    return written;
  }
  absl::Status kept = SyncFolder(path);
  if (!kept.ok()) ::unlink(path.c_str());
  return kept;
}

absl::Status ChangeSecretFile(
    const std::string& path, bool create,
    const std::function<absl::StatusOr<std::string>(const std::string&)>& change) {
  struct stat before {};
  const bool made = create && ::lstat(path.c_str(), &before) != 0 && errno == ENOENT;
  if (made) OCTAVO_RETURN_IF_ERROR(MakeMissing(path));
  const auto unmake = [&](absl::Status status) {
    if (made) ::unlink(path.c_str());  // an empty file would be a damaged one
    return status;
  };
  OCTAVO_ASSIGN_OR_RETURN(const UniqueFd locked, OpenLocked(path, &before));
  auto now = ReadAll(path, locked);
  if (!now.ok()) return now.status();
  auto wanted = change(*now);
  if (!wanted.ok()) return now->empty() ? unmake(wanted.status()) : wanted.status();
  if (wanted->size() > kMostSecretFileBytes)
    return NotPrivate(path, absl::StrCat("would have ", wanted->size(), " bytes; allowed are ",
                                         kMostSecretFileBytes));
  // Whoever holds the lock owns the name of the new file.
  return Replace(path, *wanted, [&](const std::string& temporary, const UniqueFd& fd) {
    if ((before.st_uid != ::geteuid() || before.st_gid != ::getegid()) &&
        ::fchown(fd.get(), before.st_uid, before.st_gid) != 0 && before.st_uid != ::geteuid())
      return Failed(temporary, "cannot be given to the owner of the file", errno);
    return absl::OkStatus();
  });
}

absl::Status ReplaceSecretFile(const std::string& path, absl::string_view bytes) {
  return Replace(path, bytes, [](const std::string&, const UniqueFd&) { return absl::OkStatus(); });
}

}  // namespace octavo::security
