#include "server/storage/zarr/folder.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/json_file.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {

absl::StatusOr<ZarrFolder> ZarrFolder::Open(const std::string& path, Roots roots) {
  auto opened = OpenBeneath(path, roots, O_PATH | O_DIRECTORY);
  if (!opened.ok()) return Annotate(opened.status(), path);
  return FromOpened(std::move(opened->fd), path, std::move(roots));
}

ZarrFolder ZarrFolder::FromOpened(UniqueFd folder, std::string path, Roots roots) {
  ZarrFolder out;
  out.path_ = std::move(path);
  out.roots_ = std::move(roots);
  out.follow_links_ = true;
  out.fd_ = std::make_shared<const UniqueFd>(std::move(folder));
  return out;
}

ZarrFolder ZarrFolder::FromDescriptor(UniqueFd folder, std::string name) {
  ZarrFolder out;
  out.path_ = std::move(name);
  out.fd_ = std::make_shared<const UniqueFd>(std::move(folder));
  return out;
}

std::string ZarrFolder::PathOf(const std::string& below) const {
  return absl::StrCat(path_, "/", below);
}

absl::StatusOr<UniqueFd> ZarrFolder::OpenBelow(const std::string& below, int flags) const {
  const std::string path = PathOf(below);
  UniqueFd fd = OpenWithin(*fd_, below, flags | O_CLOEXEC);
  if (fd) return fd;
  const int error = errno;
  if (error == ENOENT) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  if (!follow_links_) {
    // Step by step, a link to a folder is no folder. It must not be taken for a missing chunk.
    if (error == ELOOP || error == EXDEV || error == ENOTDIR)
      return absl::PermissionDeniedError(absl::StrCat(
          path,
          ": is a link or below a file; a folder that was handed over is read without links"));
    return ErrnoStatus(error, "opening", path);
  }
  // Perhaps a link, which may lead elsewhere below the roots.
  auto opened = OpenBeneath(path, roots_, flags);
  if (!opened.ok()) return Annotate(opened.status(), path);
  return std::move(opened->fd);
}

absl::StatusOr<UniqueFd> ZarrFolder::OpenFile(const std::string& below) const {
  OCTAVO_ASSIGN_OR_RETURN(UniqueFd fd, OpenBelow(below, O_RDONLY | O_NONBLOCK));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "examining", PathOf(below));
  if (!S_ISREG(info.st_mode))
    return absl::DataLossError(absl::StrCat(PathOf(below), " is no regular file"));
  return fd;
}

absl::StatusOr<std::optional<nlohmann::json>> ZarrFolder::ReadJson(const std::string& below) const {
  const auto fd = OpenFile(below);
  if (absl::IsNotFound(fd.status())) return std::nullopt;
  if (!fd.ok()) return fd.status();
  OCTAVO_ASSIGN_OR_RETURN(nlohmann::json value, ReadJsonFile(fd->get(), PathOf(below)));
  return value;
}

absl::StatusOr<ZarrFolder> ZarrFolder::OpenFolder(const std::string& below) const {
  OCTAVO_ASSIGN_OR_RETURN(UniqueFd fd, OpenBelow(below, O_PATH | O_DIRECTORY));
  ZarrFolder folder = *this;
  folder.path_ = PathOf(below);
  folder.fd_ = std::make_shared<const UniqueFd>(std::move(fd));
  return folder;
}

absl::StatusOr<std::vector<std::string>> ZarrFolder::Names(size_t most) const {
  // A descriptor of its own: listing moves the position.
  UniqueFd fd = OpenWithin(*fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (!fd) return ErrnoStatus(errno, "opening", path_);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(fd.get()), &::closedir);
  if (folder == nullptr) return ErrnoStatus(errno, "listing", path_);
  (void)fd.release();
  std::vector<std::string> names;
  for (size_t seen = 0; const dirent* const entry = ::readdir(folder.get()); ++seen) {
    if (seen > most)
      return absl::ResourceExhaustedError(absl::StrCat(path_, " has more than ", most, " names"));
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsPathBelow(const std::string& path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  return path.find('\0') == std::string::npos &&
         std::none_of(parts.begin(), parts.end(), [](absl::string_view part) {
           return part.empty() || part == "." || part == "..";
         });
}

}  // namespace octavo::storage
