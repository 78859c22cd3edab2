#include "server/security/lost_lines.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/status.h"

namespace octavo::security {
namespace {

constexpr size_t kDigits = 16;
constexpr int64_t kMost = 999'999'999'999'999;

}  // namespace

absl::StatusOr<LostLines> LostLines::Open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  struct stat found {};
  if (::fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(path, " is no regular file"));
  LostLines lost(path, std::move(fd));
  std::array<char, kDigits> text{};
  const ssize_t n = ::pread(lost.file_.get(), text.data(), text.size(), 0);
  int64_t before = 0;
  if (n > 0 && absl::SimpleAtoi(absl::string_view(text.data(), static_cast<size_t>(n)), &before))
    lost.before_ = before < 0 || before > kMost ? 0 : before;
  OCTAVO_RETURN_IF_ERROR(lost.Note(0));
  return lost;
}

absl::Status LostLines::Note(int64_t lines) {
  const std::string text =
      absl::StrCat(absl::Dec(lines > kMost ? kMost : lines, absl::kZeroPad16), "\n");
  // Not synced: a disk that hangs would hold up the stop. It outlives the process all the same.
  const ssize_t n = ::pwrite(file_.get(), text.data(), text.size(), 0);
  if (n != static_cast<ssize_t>(text.size()))
    return absl::ErrnoToStatus(n >= 0 ? ENOSPC : errno, absl::StrCat("writing ", path_));
  return absl::OkStatus();
}

}  // namespace octavo::security
