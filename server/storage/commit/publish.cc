#include "server/storage/commit/publish.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_members.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {

nlohmann::json CommitPaths::ToJson(const char* op) const {
  return {{"op", op},
          {"key", key},
          {"id", id},
          {"volume", volume},
          {"final", final},
          {"temporary", temporary},
          {"format", static_cast<int>(format)},
          {"folder", folder},
          {"made", made},
          {"root", root},
          {"root_id", root_id}};
}

absl::StatusOr<CommitPaths> CommitPaths::FromJson(const nlohmann::json& record) {
  const auto read = [&](const char* name, auto* out) {
    return record.contains(name) ? ReadMember(record, name, out) : absl::OkStatus();
  };
  CommitPaths paths;
  int format = static_cast<int>(paths.format);
  for (const auto& [name, out] :
       {std::pair{"key", &paths.key}, {"final", &paths.final}, {"temporary", &paths.temporary}})
    OCTAVO_RETURN_IF_ERROR(ReadMember(record, name, out));
  for (const auto& [name, out] : {std::pair{"id", &paths.id},
                                  {"volume", &paths.volume},
                                  {"root", &paths.root},
                                  {"root_id", &paths.root_id}})
    OCTAVO_RETURN_IF_ERROR(read(name, out));
  OCTAVO_RETURN_IF_ERROR(read("format", &format));
  paths.format = static_cast<Format>(format);
  if (format != static_cast<int>(paths.format) ||
      std::find(std::begin(kFormats), std::end(kFormats), paths.format) == std::end(kFormats))
    return BadValue("format", format, "are the numbers of octavo.v1.Format");
  paths.folder = paths.format == Format::kOmeZarr05;
  OCTAVO_RETURN_IF_ERROR(read("folder", &paths.folder));
  OCTAVO_RETURN_IF_ERROR(read("made", &paths.made));
  return paths;
}

std::string RootOf(const std::vector<std::string>& roots, const std::string& path) {
  std::string innermost;
  for (const std::string& root : roots) {
    const std::string real = RealPath(root);
    if (!real.empty() && IsInside(path, real) && real.size() > innermost.size()) innermost = real;
  }
  return innermost;
}

bool IsSameRoot(const CommitPaths& paths) {
  return paths.root_id.empty() || DirectoryId(paths.root) == paths.root_id;
}

absl::Status PublishFiles(const CommitPaths& paths) {
  if (!paths.folder) {
    const std::string data = absl::StrCat(paths.temporary, "/", kDataFile),
                      meta = absl::StrCat(paths.temporary, "/", kMetaFile);
    // Publish the metadata first, so that a reader that sees the array finds them. The temporary
    // directory with the manifest stays until both files are durable, so that recovery can tell
    // which commit they belong to.
    if (PathExists(meta)) OCTAVO_RETURN_IF_ERROR(RenameNoReplace(meta, paths.Side()));
    if (const int error = Failpoint("side_renamed"))
      return ErrnoStatus(error, "renaming to", paths.final);
    if (PathExists(data)) {
      if (absl::Status renamed = RenameNoReplace(data, paths.final); !renamed.ok()) {
        if (const absl::Status back = RenameNoReplace(paths.Side(), meta); !back.ok())
          return Annotate(renamed, back.message());
        return renamed;
      }
    }
  } else {
    OCTAVO_RETURN_IF_ERROR(RenameNoReplace(paths.temporary, paths.final));
  }
  if (const int error = Failpoint("after_rename"))
    return ErrnoStatus(error, "renaming to", paths.final);
  OCTAVO_RETURN_IF_ERROR(SyncDirectory(ParentOf(paths.final)));
  if (const int error = Failpoint("parent_synced"))
    return ErrnoStatus(error, "syncing", paths.final);
  return absl::OkStatus();
}

absl::Status WithdrawFiles(const CommitPaths& paths) {
  const auto take_back = [](const std::string& final, const std::string& temporary) {
    return PathExists(temporary) || !PathExists(final) ? absl::OkStatus()
                                                       : RenameNoReplace(final, temporary);
  };
  if (paths.folder) return take_back(paths.final, paths.temporary);
  const absl::Status data = take_back(paths.final, absl::StrCat(paths.temporary, "/", kDataFile));
  const absl::Status side = take_back(paths.Side(), absl::StrCat(paths.temporary, "/", kMetaFile));
  return data.ok() ? side : data;
}

bool RemoveTree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  return !PathExists(path);
}

absl::StatusOr<HeldPaths> Hold(const std::vector<std::string>& roots, const CommitPaths& paths) {
  const std::string folder = ParentOf(paths.final);
  auto opened = OpenBeneath(folder, roots, O_RDONLY | O_DIRECTORY);
  // The path had no links when it was chosen.
  if (InfoOf(opened.status()).reason == Reason::kOutsideRoots ||
      (opened.ok() && opened->path != folder))
    return InvalidField("options.destination", absl::StrCat("leads through a link: ", folder));
  OCTAVO_RETURN_IF_ERROR(opened.status());
  HeldPaths held{.folder = std::move(opened->fd), .temporary = {}, .paths = paths, .known = paths};
  held.paths.final = absl::StrCat(NameOfOpen(held.folder), "/", BaseOf(paths.final));
  held.paths.temporary = absl::StrCat(NameOfOpen(held.folder), "/", BaseOf(paths.temporary));
  return held;
}

absl::Status HeldPaths::OpenTemporary() {
  temporary = OpenWithin(folder, BaseOf(known.temporary), O_RDONLY | O_DIRECTORY);
  return temporary ? absl::OkStatus() : ErrnoStatus(errno, "opening", known.temporary);
}

bool HeldPaths::HasFolderName(const std::vector<std::string>& roots) const {
  const auto now = Hold(roots, known);
  struct stat open {
  }, named{};
  return now.ok() && ::fstat(folder.get(), &open) == 0 && ::fstat(now->folder.get(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

bool HeldPaths::HasTemporaryName() const {
  struct stat open {
  }, named{};
  return ::fstat(temporary.get(), &open) == 0 &&
         ::fstatat(folder.get(), BaseOf(known.temporary).c_str(), &named, AT_SYMLINK_NOFOLLOW) ==
             0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

CommitPaths HeldPaths::Moving() const {
  CommitPaths moving = paths;
  if (!paths.folder) moving.temporary = NameOfOpen(temporary);
  return moving;
}

absl::Status HeldPaths::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  const std::string parent = ParentOf(known.final);
  const std::string text = absl::StrReplaceAll(
      status.message(),
      {{absl::StrCat(NameOfOpen(temporary), "/"), absl::StrCat(known.temporary, "/")},
       {absl::StrCat(NameOfOpen(folder), "/"), absl::StrCat(parent, "/")},
       {absl::StrCat(NameOfOpen(temporary), ":"), absl::StrCat(known.temporary, ":")},
       {absl::StrCat(NameOfOpen(folder), ":"), absl::StrCat(parent, ":")}});
  return WithInfo(absl::Status(status.code(), text), InfoOf(status));
}

absl::Status MakeBeneath(const std::vector<std::string>& roots, const std::string& directory) {
  OCTAVO_ASSIGN_OR_RETURN(const OpenedBeneath parent,
                          OpenBeneath(ParentOf(directory), roots, O_RDONLY | O_DIRECTORY));
  if (::mkdirat(parent.fd.get(), BaseOf(directory).c_str(), 0755) != 0)
    return ErrnoStatus(errno, "creating directory", directory);
  return SyncDirectory(NameOfOpen(parent.fd));
}

void RemoveEmpty(const std::vector<std::string>& roots,
                 const std::vector<std::string>& directories) {
  for (auto it = directories.rbegin(); it != directories.rend(); ++it) {
    const auto parent = OpenBeneath(ParentOf(*it), roots, O_RDONLY | O_DIRECTORY);
    if (parent.ok() && parent->path == ParentOf(*it))
      (void)::unlinkat(parent->fd.get(), BaseOf(*it).c_str(), AT_REMOVEDIR);
  }
}

}  // namespace octavo::storage
