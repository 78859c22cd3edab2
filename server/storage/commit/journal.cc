#include "server/storage/commit/journal.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/own_file.h"

namespace octavo::storage {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;

std::string LineOf(const nlohmann::json& record) {
  const std::string text = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return absl::StrCat(absl::Hex(Crc32c(text.data(), text.size()), absl::kZeroPad8), " ", text,
                      "\n");
}

/// Whether a line begins as LineOf has it: a crash may have left no more of it.
bool BeginsAsRecord(absl::string_view line) {
  constexpr absl::string_view kShape = "00000000 {";
  for (size_t i = 0; i < std::min(line.size(), kShape.size()); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (kShape[i] == '0' ? !absl::ascii_isxdigit(c) : line[i] != kShape[i]) return false;
  }
  return true;
}

/// Keeps what a damaged journal holds: its records are used, and the next start knows only those.
std::string KeepDamaged(const std::string& path, const std::string& text, int64_t damaged,
                        size_t records) {
  std::string aside = absl::StrCat(path, ".damaged");
  for (int i = 1; PathExists(aside); ++i) aside = absl::StrCat(path, ".damaged.", i);
  const absl::Status kept = [&]() -> absl::Status {
    const UniqueFd fd(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) return ErrnoStatus(errno, "creating", aside);
    OCTAVO_RETURN_IF_ERROR(WriteAll(fd.get(), aside, text.data(), text.size()));
    return ::fdatasync(fd.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "syncing", aside);
  }();
  return absl::StrCat(path, ": damaged (lines that are no records: ", damaged, "); ",
                      kept.ok() ? absl::StrCat("put aside as ", aside)
                                : absl::StrCat("could not be put aside: ", kept.message()),
                      "; sound records, which count: ", records);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path,
                                                       std::vector<nlohmann::json>* records,
                                                       std::vector<std::string>* report) {
  // The lock is a separate file, because compaction replaces the journal itself.
  const std::string lock_path = absl::StrCat(path, ".lock");
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return ErrnoStatus(errno, "opening", lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "locking", lock_path);
    return absl::FailedPreconditionError(
        absl::StrCat("another process uses the state directory of ", path));
  }
  UniqueFd fd(::open(path.c_str(),
                     O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd && errno == ELOOP)
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a link; allowed is a file that octavod has made"));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "opening journal", path);
  // A record names files that are removed or published.
  if (const std::string why = WhyNotOwn(info, path, "600"); !why.empty())
    return absl::FailedPreconditionError(why);
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(fd.get(), path, kMostBytes));
  int64_t damaged = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    uint32_t crc = 0;
    if (line.size() < 10 || !absl::SimpleHexAtoi(line.substr(0, 8), &crc) ||
        Crc32c(line.data() + 9, line.size() - 9) != crc) {
      damaged += BeginsAsRecord(line) ? 0 : 1;
      continue;
    }
    auto record = ParseJson(line.substr(9));
    if (record.ok() && record->is_object()) records->push_back(*std::move(record));
  }
  if (damaged > 0 && report != nullptr)
    report->push_back(KeepDamaged(path, text, damaged, records->size()));
  // A torn line must not swallow the next record.
  if (!text.empty() && text.back() != '\n')
    OCTAVO_RETURN_IF_ERROR(WriteAll(fd.get(), path, "\n", 1));
  OCTAVO_RETURN_IF_ERROR(SyncDirectory(ParentOf(path)));
  return std::unique_ptr<Journal>(new Journal(path, std::move(lock), std::move(fd)));
}

absl::Status Journal::Append(const nlohmann::json& record) {
  MutexLock lock(mutex_);
  const std::string line = absl::StrCat(torn_ ? "\n" : "", LineOf(record));
  struct stat before {};
  if (::fstat(fd_.get(), &before) != 0) return ErrnoStatus(errno, "examining journal", path_);
  absl::Status status = WriteAll(fd_.get(), path_, line.data(), line.size());
  if (status.ok() && ::fdatasync(fd_.get()) != 0)
    status = ErrnoStatus(errno, "syncing journal", path_);
  // A line that could not be written must not stay in the file, and no half of it may precede the
  // next line.
  if (!status.ok() &&
      (Failpoint("journal_cut") != 0 || ::ftruncate(fd_.get(), before.st_size) != 0)) {
    torn_ = true;
    return Annotate(status, absl::StrCat("and the journal could not be cut back to ",
                                         before.st_size, " bytes"));
  }
  if (status.ok()) torn_ = false;
  return status;
}

int64_t Journal::bytes() {
  MutexLock lock(mutex_);
  struct stat info {};
  return ::fstat(fd_.get(), &info) == 0 ? info.st_size : 0;
}

absl::Status Journal::Replace(const std::vector<nlohmann::json>& records) {
  std::string text;
  for (const auto& record : records) text += LineOf(record);
  const std::string fresh = absl::StrCat(path_, ".new");
  MutexLock lock(mutex_);
  UniqueFd fd(
      ::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return ErrnoStatus(errno, "creating", fresh);
  OCTAVO_RETURN_IF_ERROR(WriteAll(fd.get(), fresh, text.data(), text.size()));
  if (::fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "syncing", fresh);
  if (::rename(fresh.c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, "renaming to", path_);
  fd_ = std::move(fd);
  torn_ = false;
  return SyncDirectory(ParentOf(path_));
}

}  // namespace octavo::storage
