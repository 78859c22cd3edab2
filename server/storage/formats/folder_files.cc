#include "server/storage/formats/folder_files.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

/// The digits that begin at `at`, without leading zeros; moves behind them.
absl::string_view DigitsAt(const std::string& text, size_t* at) {
  while (*at + 1 < text.size() && text[*at] == '0' && IsDigit(text[*at + 1])) ++*at;
  const size_t begin = *at;
  while (*at < text.size() && IsDigit(text[*at])) ++*at;
  return absl::string_view(text).substr(begin, *at - begin);
}

}  // namespace

bool NaturallyBefore(const std::string& a, const std::string& b) {
  size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[k])) {
      const absl::string_view left = DigitsAt(a, &i), right = DigitsAt(b, &k);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else {
      if (a[i] != b[k]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[k]);
      ++i, ++k;
    }
  }
  if (i < a.size() || k < b.size()) return k < b.size();
  return a < b;
}

absl::StatusOr<std::shared_ptr<ByteSource>> FolderFile::Open() const {
  UniqueFd fd = OpenWithin(*folder_, name_, O_RDONLY | O_NONBLOCK);
  if (!fd) return ErrnoStatus(errno, "opening", absl::StrCat(folder_name_, "/", name_));
  OCTAVO_ASSIGN_OR_RETURN(auto bytes,
                          FileBytes(std::move(fd), absl::StrCat(folder_name_, "/", name_)));
  if (bytes->size() != bytes_)
    return DamagedFile(
        folder_name_, name_,
        absl::StrCat("has ", bytes->size(), " bytes; when the folder was opened it had ", bytes_));
  return bytes;
}

absl::StatusOr<std::vector<std::shared_ptr<FolderFile>>> FolderFiles(const UniqueFd& folder,
                                                                     const std::string& name,
                                                                     size_t most) {
  auto kept = std::make_shared<UniqueFd>(::fcntl(folder.get(), F_DUPFD_CLOEXEC, 0));
  UniqueFd listed(::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!*kept || !listed) return ErrnoStatus(errno, "opening", name);
  DIR* const stream = ::fdopendir(listed.get());
  if (stream == nullptr) return ErrnoStatus(errno, "listing", name);
  (void)listed.release();  // the stream owns it
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(stream, ::closedir);
  std::vector<std::shared_ptr<FolderFile>> files;
  errno = 0;
  while (const dirent* const entry = ::readdir(stream)) {
    struct stat info {};
    if (entry->d_name[0] == '.') continue;
    if (::fstatat(folder.get(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    if (files.size() == most)
      return UnsupportedFile(name, "the folder", absl::StrCat("one of more than ", most, " files"),
                             absl::StrCat("up to ", most));
    files.push_back(std::make_shared<FolderFile>(kept, name, entry->d_name, info.st_size));
    errno = 0;
  }
  if (errno != 0) return ErrnoStatus(errno, "listing", name);
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return NaturallyBefore(a->name(), b->name()); });
  return files;
}

}  // namespace octavo::storage
