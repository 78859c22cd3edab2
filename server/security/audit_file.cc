#include "server/security/audit_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"

namespace octavo::security {
namespace {

constexpr absl::string_view kAside = "audit-", kEnding = ".jsonl";

absl::Status Failed(int error, absl::string_view doing, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat(doing, " ", path));
}

/// Writes all of it.
absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(errno, "writing", path);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status CheckFolder(const std::string& folder) {
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) return Failed(errno, "opening", folder);
  if (!S_ISDIR(found.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(folder, " is no directory"));
  // Whoever may write into the folder may take lines away.
  if (found.st_uid != ::geteuid() || (found.st_mode & 0022) != 0)
    return absl::FailedPreconditionError(absl::StrCat(
        folder,
        " must belong to the user of octavod, and nobody else may write into it (mode 0700, "
        "or 0750 for readers of its group)"));
  return absl::OkStatus();
}

/// The time and the number in the name of a file that was put aside; nothing of other names.
std::pair<std::string, int> NumberIn(absl::string_view name) {
  absl::ConsumePrefix(&name, kAside);
  absl::ConsumeSuffix(&name, kEnding);
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  int n = 0;
  if (parts.size() != 2 || parts[0].size() != 16 || !absl::SimpleAtoi(parts[1], &n) || n < 0 ||
      n > 1'000'000'000)
    return {};
  return {std::string(parts[0]), n};
}

}  // namespace

absl::StatusOr<AuditFile> AuditFile::Open(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Failed(errno, "creating directory", folder);
  OCTAVO_RETURN_IF_ERROR(CheckFolder(folder));
  const std::string lock_path = absl::StrCat(folder, "/audit.lock");
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return Failed(errno, "opening", lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is used by another process, which keeps its audit log there"));
  AuditFile opened(folder, std::move(lock));
  OCTAVO_RETURN_IF_ERROR(opened.OpenCurrent());
  return opened;
}

absl::Status AuditFile::SyncFolder() const {
  const UniqueFd fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return Failed(errno, "writing", folder_);
  return absl::OkStatus();
}

absl::Status AuditFile::OpenCurrent() {
  OCTAVO_RETURN_IF_ERROR(CheckFolder(folder_));
  const std::string path = Current();
  // Readers of the folder's group may read it: who may enter the folder decides.
  UniqueFd file(::open(path.c_str(),
                       O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640));
  if (!file) return Failed(errno, "opening", path);
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return Failed(errno, "opening", path);
  if (!S_ISREG(found.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(path, " is no regular file"));
  size_ = found.st_size;
  // A power cut may have torn the last line; the next one begins on its own.
  char last = '\n';
  if (size_ > 0 && ::pread(file.get(), &last, 1, size_ - 1) != 1)
    return Failed(errno, "reading", path);
  if (last != '\n') {
    OCTAVO_RETURN_IF_ERROR(WriteAll(file.get(), "\n", path));
    ++size_;
  }
  file_ = std::move(file);
  return SyncFolder();
}

absl::StatusOr<std::string> AuditFile::AsideName() {
  std::string time = absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone());
  // Names sort by age also where the clock was put back: Prune removes the first ones.
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<std::string> aside, Aside());
  std::pair last(last_aside_, of_last_aside_);
  for (const std::string& name : aside) last = std::max(last, NumberIn(name));
  time = std::max(time, last.first);
  for (int n = time == last.first ? last.second + 1 : 0;; ++n) {
    std::string name =
        absl::StrCat(folder_, "/", kAside, time, "-", absl::Dec(n, absl::kZeroPad4), kEnding);
    struct stat found {};
    if (::lstat(name.c_str(), &found) == 0) continue;
    if (errno != ENOENT) return Failed(errno, "looking for", name);
    last_aside_ = time;
    of_last_aside_ = n;
    return name;
  }
}

bool AuditFile::IsInPlace() const {
  struct stat open {
  }, named{};
  return file_ && ::fstat(file_.get(), &open) == 0 && ::lstat(Current().c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

absl::Status AuditFile::Append(absl::string_view lines, bool fsync) {
  if (!IsInPlace()) {
    file_ = UniqueFd();
    OCTAVO_RETURN_IF_ERROR(OpenCurrent());
  }
  const int injected = Failpoint("audit_write");
  absl::Status written = injected == 0 ? WriteAll(file_.get(), lines, Current())
                                       : Failed(injected, "writing", Current());
  // What the disk did not take may be lost although a later fsync succeeds: it counts as not
  // written, and stands in the file twice if it was.
  if (written.ok() && fsync && ::fdatasync(file_.get()) != 0)
    written = Failed(errno, "writing", Current());
  if (written.ok()) {
    size_ += static_cast<int64_t>(lines.size());
    return written;
  }
  // No half of a line stays; if it cannot be cut off, the next attempt opens the file again.
  if (::ftruncate(file_.get(), size_) != 0) file_ = UniqueFd();
  return written;
}

absl::Status AuditFile::Rotate(int64_t bytes, int64_t kept, std::vector<Removed>* removed) {
  if (size_ < bytes || !IsInPlace()) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const std::string aside, AsideName());
  if (::rename(Current().c_str(), aside.c_str()) != 0) return Failed(errno, "renaming", Current());
  file_ = UniqueFd();
  OCTAVO_RETURN_IF_ERROR(OpenCurrent());
  return kept == 0 ? absl::OkStatus() : Prune(kept, removed);
}

absl::StatusOr<std::vector<std::string>> AuditFile::Aside() const {
  std::vector<std::string> aside;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder_, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    if (absl::StartsWith(name, kAside) && absl::EndsWith(name, kEnding))
      aside.push_back(std::move(name));
  }
  if (error) return Failed(error.value(), "listing", folder_);
  // By their numbers, which may have more digits than the names have places.
  std::sort(aside.begin(), aside.end(), [](const std::string& a, const std::string& b) {
    const auto of_a = NumberIn(a), of_b = NumberIn(b);
    const bool strange_a = of_a.first.empty(), strange_b = of_b.first.empty();
    return std::tie(strange_a, of_a, a) < std::tie(strange_b, of_b, b);
  });
  return aside;
}

absl::Status AuditFile::Prune(int64_t kept, std::vector<Removed>* removed) const {
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<std::string> aside, Aside());
  for (size_t i = 0; i + static_cast<size_t>(kept) < aside.size(); ++i) {
    const std::string path = absl::StrCat(folder_, "/", aside[i]);
    struct stat found {};
    const bool is_there = ::lstat(path.c_str(), &found) == 0;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Failed(errno, "removing", path);
    if (is_there) removed->push_back({.name = aside[i], .bytes = found.st_size});
  }
  return absl::OkStatus();
}

}  // namespace octavo::security
