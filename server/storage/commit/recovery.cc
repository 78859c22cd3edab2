#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/commit/find_published.h"
#include "server/storage/commit/publish.h"
#include "server/storage/commit/quarantine.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_file.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

/// A JSON file in an open folder; null if it is missing or is not JSON.
nlohmann::json ParseFile(const UniqueFd& folder, const std::string& name,
                         const JsonLimits& limits = {}) {
  const UniqueFd fd = OpenWithin(folder, name, O_RDONLY | O_NONBLOCK);
  if (!fd) return {};
  auto parsed = ReadJsonFile(fd.get(), name, limits);
  return parsed.ok() ? *std::move(parsed) : nlohmann::json();
}

/// The member at `pointer` as text; "" if it is not there or no text.
std::string TextAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json::json_pointer at(pointer);
  return json.is_object() && json.contains(at) && json[at].is_string() ? json[at].get<std::string>()
                                                                       : "";
}

/// Whether the file with the final name came from this commit; another program may have taken the
/// name.
bool IsOurs(const HeldPaths& held) {
  const CommitPaths& paths = held.known;
  if (!paths.folder)
    return TextAt(ParseFile(held.folder, BaseOf(paths.Side())), "/volume") == paths.volume;
  const UniqueFd final = OpenWithin(held.folder, BaseOf(paths.final), O_RDONLY | O_DIRECTORY);
  return final &&
         (TextAt(ParseFile(final, kManifestName, kManifestLimits), "/commit") == paths.id ||
          TextAt(ParseFile(final, "zarr.json"), "/attributes/octavo/volume") == paths.volume ||
          TextAt(ParseFile(final, ".zattrs"), "/octavo/volume") == paths.volume);
}

/// DataLoss if a file in an open folder differs from the manifest.
absl::Status VerifyWithin(const UniqueFd& folder, const std::string& path,
                          const Manifest::File& file) {
  const UniqueFd fd = OpenWithin(folder, BaseOf(path), O_RDONLY | O_NONBLOCK);
  return fd ? VerifyFile(fd, path, file)
            : absl::DataLossError(ErrnoStatus(errno, "opening", path).message());
}

absl::Status VerifyTemporary(const HeldPaths& held) {
  const CommitPaths& paths = held.known;
  if (paths.folder) return VerifyDirectory(held.temporary, paths.temporary).status();
  OCTAVO_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(held.temporary, paths.temporary));
  for (const auto& file : manifest.files) {  // each may have its final name already
    if (file.path != kDataFile && file.path != kMetaFile)
      return absl::DataLossError(absl::StrCat("the manifest names ", file.path));
    const bool moved = !PathExists(absl::StrCat(NameOfOpen(held.temporary), "/", file.path));
    OCTAVO_RETURN_IF_ERROR(
        !moved ? VerifyWithin(held.temporary, absl::StrCat(paths.temporary, "/", file.path), file)
        : file.path == kDataFile ? VerifyWithin(held.folder, paths.final, file)
                                 : VerifyWithin(held.folder, paths.Side(), file));
  }
  return absl::OkStatus();
}

absl::Status VerifyFinal(const HeldPaths& held) {
  const CommitPaths& paths = held.known;
  if (paths.folder) {
    const UniqueFd final = OpenWithin(held.folder, BaseOf(paths.final), O_RDONLY | O_DIRECTORY);
    return final ? VerifyDirectory(final, paths.final).status()
                 : ErrnoStatus(errno, "opening", paths.final);
  }
  const nlohmann::json side = ParseFile(held.folder, BaseOf(paths.Side()));
  Manifest::File file{.path = "", .bytes = -1, .crc32c = 0};
  if (!absl::SimpleHexAtoi(TextAt(side, "/file/crc32c"), &file.crc32c) ||
      !side["file"].contains("bytes") || !side["file"]["bytes"].is_number_integer()) {
    return absl::DataLossError(absl::StrCat("damaged metadata ", paths.Side()));
  }
  file.bytes = side["file"]["bytes"];
  return VerifyWithin(held.folder, paths.final, file);
}

std::string MovedTo(const std::string& to) {
  return to.empty() ? "could not be moved to quarantine; it will be tried again at the next start"
                    : absl::StrCat("moved to ", to);
}

Recovered RecoverFinal(const std::vector<std::string>& roots, const HeldPaths& held) {
  const CommitPaths& paths = held.known;
  if (!PathExists(held.paths.final))
    return {absl::StrCat(paths.final, ": nothing was written; the destination is absent")};
  if (!IsOurs(held))
    return {absl::StrCat(
        paths.final,
        ": nothing was written; the file of this name is another program's and stays")};
  const absl::Status verified = VerifyFinal(held);
  if (verified.ok())
    return {.line = absl::StrCat(paths.final, ": was complete, verified"), .published = true};
  const std::string to = MoveToQuarantine(roots, held.folder, paths.final);
  if (!paths.folder && !to.empty()) (void)MoveToQuarantine(roots, held.folder, paths.Side());
  return {absl::StrCat(paths.final, ": damaged (", verified.message(), "); ", MovedTo(to)),
          !to.empty()};
}

absl::Status PublishVerified(const std::vector<std::string>& roots, const HeldPaths& held) {
  OCTAVO_RETURN_IF_ERROR(VerifyTemporary(held));
  // Without renameat2 a directory's name is reserved by an empty one.
  if (held.paths.folder) ::rmdir(held.paths.final.c_str());
  return held.Named(PublishHeld(roots, held).status);
}

Recovered RecoverTemporary(const std::vector<std::string>& roots, HeldPaths& held) {
  const CommitPaths& paths = held.known;
  absl::Status status = held.OpenTemporary();
  if (status.ok()) status = PublishVerified(roots, held);
  if (status.ok()) {
    const bool removed = paths.folder || RemoveTree(held.paths.temporary);
    return {.line = absl::StrCat(paths.final, ": was written and is published now, verified"),
            .settled = removed,
            .published = true};
  }
  // Renaming begins only after the manifest is written; before that no final name is ours.
  if (!paths.folder && held.temporary &&
      PathExists(absl::StrCat(NameOfOpen(held.temporary), "/", kManifestName)))
    (void)WithdrawFiles(held.Moving());
  const std::string to = MoveToQuarantine(roots, held.folder, paths.temporary);
  return {absl::StrCat(paths.final, ": not finished (", status.message(), "); ", MovedTo(to)),
          !to.empty()};
}

}  // namespace

Recovered Recover(const std::vector<std::string>& roots, const CommitPaths& paths, bool abandoned) {
  auto held = Hold(roots, paths);
  const bool there = held.ok() && PathExists(held->paths.temporary);
  if (!there && !IsSameRoot(paths)) {
    return {
        absl::StrCat(paths.final, ": nothing is settled, because ", paths.root,
                     " is missing or is not the directory that it was when the commit began (is a "
                     "disk not mounted?); the next start tries again"),
        false};
  }
  if (!held.ok() && !absl::IsNotFound(held.status())) {
    return {absl::StrCat(paths.final, ": nothing is settled, because its folder ",
                         absl::IsInvalidArgument(held.status())
                             ? "lies behind a link or outside of the storage roots"
                             : absl::StrCat("cannot be opened (", held.status().message(), ")"),
                         "; the next start looks again"),
            false};
  }
  Recovered out;
  if (abandoned) {
    out.settled = !there || RemoveTree(held->paths.temporary);
    out.line = absl::StrCat(paths.final, ": had been given up; its temporary files ",
                            out.settled ? "are removed" : "could not be removed");
  } else if (!held.ok()) {
    out.line = absl::StrCat(paths.final, ": nothing was written; the destination is absent");
  } else {
    out = there ? RecoverTemporary(roots, *held) : RecoverFinal(roots, *held);
  }
  if (out.settled) RemoveEmpty(roots, paths.made);
  return out;
}

std::optional<PublishedCommit> FindPublished(const std::vector<std::string>& roots,
                                             const std::string& commit_id,
                                             const std::string& volume,
                                             const std::string& destination) {
  const auto resolved = ResolveDestination(roots, destination);
  if (!resolved.ok()) return std::nullopt;
  for (const Format format : kFormats) {
    WriterOptions options;
    options.format = format;
    CommitPaths paths{.key = commit_id, .id = commit_id, .volume = volume};
    paths.final = WithExtension(*resolved, options);
    paths.temporary = absl::StrCat(ParentOf(paths.final), "/.octavo-", commit_id, ".tmp");
    paths.format = format;
    paths.folder = !IsSingleFile(options);
    if (!PathExists(paths.final)) continue;
    const auto held = Hold(roots, paths);
    if (held.ok() && IsOurs(*held))
      return PublishedCommit{.commit_id = commit_id, .path = paths.final, .format = format};
  }
  return std::nullopt;
}

}  // namespace octavo::storage
