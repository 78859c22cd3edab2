#include "server/storage/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gpu/base/status.h"
#include "server/storage/commit_store.h"
#include "server/storage/crc32c.h"
#include "server/storage/files.h"

namespace octavo::storage {

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path, std::vector<nlohmann::json>* records) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, "opening journal", path);
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    uint32_t crc = 0;
    if (line.size() < 10 || !absl::SimpleHexAtoi(line.substr(0, 8), &crc) || Crc32c(line.data() + 9, line.size() - 9) != crc) continue;
    auto record = nlohmann::json::parse(line.begin() + 9, line.end(), nullptr, /*allow_exceptions=*/false);
    if (record.is_object()) records->push_back(std::move(record));
  }
  // A torn line must not swallow the next record.
  if (!text.empty() && text.back() != '\n' && ::write(fd.get(), "\n", 1) != 1) return ErrnoStatus(errno, "writing", path);
  OCTAVO_RETURN_IF_ERROR(SyncDirectory(ParentOf(path)));
  return std::unique_ptr<Journal>(new Journal(path, std::move(fd)));
}

absl::Status Journal::Append(const nlohmann::json& record) {
  const std::string text = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string line = absl::StrCat(absl::Hex(Crc32c(text.data(), text.size()), absl::kZeroPad8), " ", text, "\n");
  MutexLock lock(mutex_);
  const ssize_t n = ::write(fd_.get(), line.data(), line.size());
  if (n != static_cast<ssize_t>(line.size())) return ErrnoStatus(n < 0 ? errno : ENOSPC, "writing journal", path_);
  if (::fdatasync(fd_.get()) != 0) return ErrnoStatus(errno, "syncing journal", path_);
  return absl::OkStatus();
}

absl::Status Journal::Clear() {
  MutexLock lock(mutex_);
  if (::ftruncate(fd_.get(), 0) != 0 || ::fdatasync(fd_.get()) != 0) return ErrnoStatus(errno, "clearing journal", path_);
  return absl::OkStatus();
}

}  // namespace octavo::storage
