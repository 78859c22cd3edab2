#include "server/storage/commit/publish.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <sys/stat.h>
#include <system_error>
#include <tuple>
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
namespace {

/// Which file it is, whatever its name.
struct FileId {
  dev_t device = 0;
  ino_t number = 0;  // 0 = there is none
};
bool IsSame(const FileId& a, const FileId& b) {
  return a.number != 0 && a.number == b.number && a.device == b.device;
}
FileId IdOf(const UniqueFd& fd) {
  struct stat info {};
  return ::fstat(fd.get(), &info) == 0 ? FileId{info.st_dev, info.st_ino} : FileId{};
}
/// A name in an open folder, no link followed.
FileId IdOf(const UniqueFd& folder, const std::string& name) {
  struct stat info {};
  return ::fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0
             ? FileId{info.st_dev, info.st_ino}
             : FileId{};
}

/// A rename of PublishFiles.
struct Renamed {
  std::string from, to;  // through the open folders
  std::string name;      // in the open folder
  UniqueFd file;         // open, so that no other file gets its number
};
absl::StatusOr<std::vector<Renamed>> RenamesOf(const HeldPaths& held) {
  const CommitPaths moving = held.Moving();
  const std::string final = BaseOf(held.known.final);
  std::vector<Renamed> renames;
  const auto add = [&](const std::string& from, const std::string& to, const std::string& name,
                       UniqueFd file) {
    if (!file) return ErrnoStatus(errno, "opening", held.known.temporary);
    renames.push_back({from, to, name, std::move(file)});
    return absl::OkStatus();
  };
  if (moving.folder) {
    OCTAVO_RETURN_IF_ERROR(add(moving.temporary, moving.final, final,
                               UniqueFd(::fcntl(held.temporary.get(), F_DUPFD_CLOEXEC, 3))));
    return renames;
  }
  for (const auto& [file, to, name] : {std::tuple{kDataFile, moving.final, final},
                                       {kMetaFile, moving.Side(), BaseOf(held.known.Side())}}) {
    UniqueFd open = OpenWithin(held.temporary, file, O_PATH);
    // An earlier process may have renamed it; this one has verified it then.
    if (!open && errno == ENOENT) open = OpenWithin(held.folder, name, O_PATH);
    OCTAVO_RETURN_IF_ERROR(
        add(absl::StrCat(moving.temporary, "/", file), to, name, std::move(open)));
  }
  return renames;
}

/// The first error of taking back what has its final name.
absl::Status TakeBack(const HeldPaths& held, const std::vector<Renamed>& renames) {
  absl::Status first;
  for (const Renamed& renamed : renames) {
    // Another program may have put its own file there by now.
    if (IsSame(IdOf(held.folder, renamed.name), IdOf(renamed.file)))
      first.Update(RenameNoReplace(renamed.to, renamed.from));
  }
  return first;
}

absl::Status MovedTemporary(const HeldPaths& held) {
  return absl::AbortedError(
      absl::StrCat("another program moved ", held.known.temporary, " while it was written"));
}

/// The path that an open folder has now.
std::string PresentPath(const UniqueFd& folder) {
  std::error_code error;
  return std::filesystem::read_symlink(NameOfOpen(folder), error).string();
}

}  // namespace

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

PublishedHeld PublishHeld(const std::vector<std::string>& roots, const HeldPaths& held,
                          bool* renaming) {
  if (absl::Status named = held.CheckFolderName(roots); !named.ok()) {
    const bool elsewhere = absl::IsAborted(named);
    return {.status = std::move(named), .elsewhere = elsewhere};
  }
  if (!held.HasTemporaryName()) return {MovedTemporary(held)};
  const absl::StatusOr<std::vector<Renamed>> renames = RenamesOf(held);
  if (!renames.ok()) return {renames.status()};
  if (const int error = Failpoint("names_checked"))
    return {ErrnoStatus(error, "renaming to", held.known.final)};
  if (renaming != nullptr) *renaming = true;
  absl::Status published = PublishFiles(held.Moving());
  absl::Status named = held.CheckFolderName(roots);
  if (!absl::IsAborted(named) && (!published.ok() || !named.ok() || !held.paths.folder))
    return {published.ok() ? std::move(named) : std::move(published)};
  if (named.ok()) {
    // Unlike a file, a folder has only its name to be renamed by, and another one may have had it
    // just then. That one is not the commit's, and stays. If there is none, a program took what
    // was published.
    const FileId final = IdOf(held.folder, BaseOf(held.known.final));
    if (final.number == 0 || IsSame(final, IdOf(held.temporary))) return {absl::OkStatus()};
    if (renaming != nullptr) *renaming = false;
    return {MovedTemporary(held)};
  }
  const absl::Status back = TakeBack(held, *renames);
  if (renaming != nullptr) *renaming = false;
  if (!back.ok()) {
    named = absl::AbortedError(absl::StrCat(named.message(), "; what was written lies in ",
                                            PresentPath(held.folder), "/", BaseOf(held.known.final),
                                            ", because it could not be taken back (",
                                            held.Named(back).message(), ")"));
  }
  return {.status = std::move(named), .elsewhere = true};
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

absl::Status HeldPaths::CheckFolderName(const std::vector<std::string>& roots) const {
  const auto now = Hold(roots, known);
  if (!now.ok() && !absl::IsNotFound(now.status()) && !absl::IsInvalidArgument(now.status()))
    return now.status();
  if (now.ok() && IsSame(IdOf(folder), IdOf(now->folder))) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("another program moved ", ParentOf(known.final),
                                         " while files were written in it"));
}

bool HeldPaths::HasTemporaryName() const {
  return IsSame(IdOf(temporary), IdOf(folder, BaseOf(known.temporary)));
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
