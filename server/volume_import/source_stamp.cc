#include "server/volume_import/source_stamp.h"

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"

namespace octavo::volume_import {
namespace {

constexpr int kMostDepth = 32;
constexpr char kItself[] = ".";

int64_t ChangedNs(const struct stat& info) {
  return static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

/// A folder of any other format has all its files in itself: what is below it may be anything.
bool IsZarr(const UniqueFd& folder) {
  struct stat info {};
  for (const char* entry : {"zarr.json", ".zarray", ".zgroup", ".zattrs"}) {
    if (::fstatat(folder.get(), entry, &info, AT_SYMLINK_NOFOLLOW) == 0) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<SourceStamp> SourceStamp::Of(UniqueFd opened) {
  SourceStamp stamp(std::move(opened));
  struct stat info {};
  if (::fstat(stamp.opened_.get(), &info) != 0)
    return storage::ErrnoStatus(errno, "examining", "the source");
  stamp.itself_ = {.size = info.st_size, .changed_ns = ChangedNs(info)};
  if (S_ISDIR(info.st_mode)) {
    stamp.most_depth_ = IsZarr(stamp.opened_) ? kMostDepth : 0;
    OCTAVO_RETURN_IF_ERROR(stamp.Walk("", 0));
  }
  return stamp;
}

absl::Status SourceStamp::Walk(const std::string& folder, int depth) {
  const UniqueFd& root = opened_;
  const int fd = ::openat(root.get(), folder.empty() ? kItself : folder.c_str(),
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  // What may not be opened will not be read; what is gone has changed the folder above.
  if (fd < 0 && depth > 0 && (errno == EACCES || errno == ENOENT)) return absl::OkStatus();
  if (fd < 0) return storage::ErrnoStatus(errno, "opening directory", folder);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  if (stream == nullptr) {
    const int error = errno;
    ::close(fd);
    return storage::ErrnoStatus(error, "reading directory", folder);
  }
  std::vector<std::string> folders;
  while (const dirent* const entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (files_.size() >= kMostFiles) return absl::OkStatus();
    const std::string path = folder.empty() ? name : absl::StrCat(folder, "/", name);
    struct stat info {};
    if (::fstatat(root.get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    files_[path] = {.inode = info.st_ino, .size = info.st_size, .changed_ns = ChangedNs(info)};
    if (S_ISDIR(info.st_mode) && depth < most_depth_) folders.push_back(path);
  }
  for (const std::string& path : folders) OCTAVO_RETURN_IF_ERROR(Walk(path, depth + 1));
  return absl::OkStatus();
}

std::string SourceStamp::Changed() const {
  struct stat info {};
  if (::fstat(opened_.get(), &info) != 0 ||
      itself_ != Entry{.size = info.st_size, .changed_ns = ChangedNs(info)})
    return kItself;
  for (const auto& [path, then] : files_) {
    if (::fstatat(opened_.get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        then != Entry{.inode = info.st_ino, .size = info.st_size, .changed_ns = ChangedNs(info)})
      return path;
  }
  return "";
}

}  // namespace octavo::volume_import
