#include <filesystem>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/files.h"
#include "server/storage/format_writers.h"
#include "server/storage/json_file.h"
#include "server/storage/manifest.h"
#include "server/storage/publish.h"
#include "server/storage/quarantine.h"

namespace octavo::storage {
namespace {

nlohmann::json ParseFile(const std::string& path) {
  auto parsed = ReadJsonFile(path);
  return parsed.ok() ? *std::move(parsed) : nlohmann::json();
}

/// The member at `pointer` as text; "" if it is not there or no text.
std::string TextAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json::json_pointer at(pointer);
  return json.is_object() && json.contains(at) && json[at].is_string() ? json[at].get<std::string>() : "";
}

/// Whether what has the final name came from this commit; another program may have taken the name.
bool IsOurs(const CommitPaths& paths) {
  if (!paths.folder) return TextAt(ParseFile(paths.Side()), "/volume") == paths.volume;
  return TextAt(ParseFile(absl::StrCat(paths.final, "/", kManifestName)), "/commit") == paths.id ||
         TextAt(ParseFile(absl::StrCat(paths.final, "/zarr.json")), "/attributes/octavo/volume") == paths.volume;
}

absl::Status VerifyTemporary(const CommitPaths& paths) {
  if (paths.folder) return VerifyDirectory(paths.temporary).status();
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(absl::StrCat(paths.temporary, "/", kManifestName)));
  OCTAVO_ASSIGN_OR_RETURN(const Manifest manifest, Manifest::FromJson(text));
  for (const auto& file : manifest.files) {  // each may have its final name already
    const std::string temporary = absl::StrCat(paths.temporary, "/", file.path);
    OCTAVO_RETURN_IF_ERROR(VerifyFile(PathExists(temporary) ? temporary : file.path == kDataFile ? paths.final : paths.Side(), file));
  }
  return absl::OkStatus();
}

absl::Status VerifyFinal(const CommitPaths& paths) {
  if (paths.folder) return VerifyDirectory(paths.final).status();
  const nlohmann::json side = ParseFile(paths.Side());
  Manifest::File file{.path = "", .bytes = -1, .crc32c = 0};
  if (!absl::SimpleHexAtoi(TextAt(side, "/file/crc32c"), &file.crc32c) || !side["file"].contains("bytes") ||
      !side["file"]["bytes"].is_number_integer()) {
    return absl::DataLossError(absl::StrCat("damaged metadata ", paths.Side()));
  }
  file.bytes = side["file"]["bytes"];
  return VerifyFile(paths.final, file);
}

std::string MovedTo(const std::string& to) {
  return to.empty() ? "could not be moved to quarantine; it will be tried again at the next start" : absl::StrCat("moved to ", to);
}

Recovered RecoverFinal(const std::vector<std::string>& roots, const CommitPaths& paths) {
  if (!PathExists(paths.final)) return {absl::StrCat(paths.final, ": nothing was written; the destination is absent")};
  if (!IsOurs(paths)) return {absl::StrCat(paths.final, ": nothing was written; what has this name is somebody else's and stays")};
  const absl::Status verified = VerifyFinal(paths);
  if (verified.ok()) return {absl::StrCat(paths.final, ": was complete, verified")};
  const std::string to = MoveToQuarantine(roots, paths.final);
  if (!paths.folder && !to.empty()) (void)MoveToQuarantine(roots, paths.Side());
  return {absl::StrCat(paths.final, ": damaged (", verified.message(), "); ", MovedTo(to)), !to.empty()};
}

Recovered RecoverTemporary(const std::vector<std::string>& roots, const CommitPaths& paths) {
  absl::Status status = VerifyTemporary(paths);
  if (status.ok()) {
    // Without renameat2 a directory's name is reserved by an empty one.
    if (paths.folder) ::rmdir(paths.final.c_str());
    status = PublishFiles(paths);
    if (status.ok()) {
      const bool removed = paths.folder || RemoveTree(paths.temporary);
      return {absl::StrCat(paths.final, ": was written and is published now, verified"), removed};
    }
  }
  // Renaming begins when the manifest is there; before that no final name is ours.
  if (!paths.folder && PathExists(absl::StrCat(paths.temporary, "/", kManifestName))) (void)WithdrawFiles(paths);
  const std::string to = MoveToQuarantine(roots, paths.temporary);
  return {absl::StrCat(paths.final, ": not finished (", status.message(), "); ", MovedTo(to)), !to.empty()};
}

}  // namespace

Recovered Recover(const std::vector<std::string>& roots, const CommitPaths& paths, bool abandoned) {
  Recovered out;
  if (!PathExists(paths.temporary) && !IsSameRoot(paths)) {
    return {absl::StrCat(paths.final, ": nothing is settled, because ", paths.root,
                         " is missing or not what it was when the commit began (is a disk not mounted?); the next start looks again"),
            false};
  }
  if (abandoned) {
    out.settled = RemoveTree(paths.temporary);
    out.line = absl::StrCat(paths.final, ": had been given up; its temporary files ", out.settled ? "are removed" : "could not be removed");
  } else {
    out = PathExists(paths.temporary) ? RecoverTemporary(roots, paths) : RecoverFinal(roots, paths);
  }
  if (out.settled) RemoveEmpty(roots, paths.made);
  return out;
}

}  // namespace octavo::storage
