#include "server/storage/commit/whole_commit.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/commit/commit_store.h"
#include "server/storage/commit/publish.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_file.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

absl::Status CannotOpen(const std::string& path, int error) {
  return absl::DataLossError(error == ENOENT
                                 ? absl::StrCat(path, " is missing")
                                 : absl::StrCat(path, " cannot be opened: ", std::strerror(error)));
}

/// DataLoss unless there is a regular file of this size below the open folder.
absl::Status CheckFile(const UniqueFd& folder, const std::string& below, const std::string& path,
                       int64_t bytes) {
  const UniqueFd fd = OpenWithin(folder, below, O_PATH);
  if (!fd) return CannotOpen(path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return CannotOpen(path, errno);
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is no regular file"));
  if (info.st_size != bytes) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", info.st_size, " bytes; written were ", bytes));
  }
  return absl::OkStatus();
}

bool IsEmptyFolder(const UniqueFd& folder) {
  const int fd = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  if (entries == nullptr) return false;
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") return false;
  }
  return true;
}

absl::Status CheckFolder(const HeldPaths& held) {
  const std::string& path = held.known.final;
  const UniqueFd folder = OpenWithin(held.folder, BaseOf(path), O_RDONLY | O_DIRECTORY);
  if (!folder) {
    return errno == ENOTDIR
               ? absl::DataLossError(absl::StrCat(path,
                                                  " is a file; a result in this format is a "
                                                  "folder"))
               : CannotOpen(path, errno);
  }
  if (IsEmptyFolder(folder)) return absl::DataLossError(absl::StrCat(path, " is an empty folder"));
  const absl::StatusOr<Manifest> manifest = ReadManifest(folder, path);
  if (absl::IsNotFound(manifest.status())) {
    return absl::DataLossError(absl::StrCat(path, " has no ", kManifestName,
                                            ", which every result has that was written whole"));
  }
  if (!manifest.ok()) return absl::DataLossError(manifest.status().message());
  for (const Manifest::File& file : manifest->files) {
    OCTAVO_RETURN_IF_ERROR(
        CheckFile(folder, file.path, absl::StrCat(path, "/", file.path), file.bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckSingleFile(const HeldPaths& held) {
  const CommitPaths& paths = held.known;
  const UniqueFd fd = OpenWithin(held.folder, BaseOf(paths.Side()), O_RDONLY | O_NONBLOCK);
  if (!fd && errno == ENOENT) {
    return absl::DataLossError(absl::StrCat(paths.final, " has no ", BaseOf(paths.Side()),
                                            " beside it, which every result has that was written "
                                            "whole"));
  }
  if (!fd) return CannotOpen(paths.Side(), errno);
  const auto side = ReadJsonFile(fd.get(), paths.Side());
  const nlohmann::json::json_pointer bytes("/file/bytes");
  if (!side.ok() || !side->is_object() || !side->contains(bytes) ||
      !(*side)[bytes].is_number_integer()) {
    return absl::DataLossError(
        absl::StrCat(paths.Side(), " does not say how many bytes ", BaseOf(paths.final), " has"));
  }
  return CheckFile(held.folder, BaseOf(paths.final), paths.final, (*side)[bytes].get<int64_t>());
}

absl::StatusOr<HeldPaths> HoldThere(const std::vector<std::string>& roots,
                                    const std::string& destination, const WriterOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(std::string final, ResolveDestination(roots, destination));
  final = WithExtension(final, options);
  const CommitPaths paths{.final = final,
                          .temporary = absl::StrCat(final, ".tmp"),
                          .format = options.format,
                          .folder = !IsSingleFile(options)};
  absl::StatusOr<HeldPaths> held = Hold(roots, paths);
  if (!held.ok()) return absl::DataLossError(held.status().message());
  return held;
}

/// A file that may have the metadata of a commit, and where they are in it.
struct MetadataPlace {
  const char* file;
  nlohmann::json::json_pointer within;
};
std::vector<MetadataPlace> PlacesOfMetadata() {  // of folders
  return {{"zarr.json", nlohmann::json::json_pointer("/attributes/octavo")},
          {".zattrs", nlohmann::json::json_pointer("/octavo")},
          {"octavo.json", nlohmann::json::json_pointer()}};
}

}  // namespace

absl::Status CheckWhole(const std::vector<std::string>& roots, const std::string& destination,
                        const WriterOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const HeldPaths held, HoldThere(roots, destination, options));
  return held.known.folder ? CheckFolder(held) : CheckSingleFile(held);
}

absl::StatusOr<nlohmann::json> ReadProcessing(const std::vector<std::string>& roots,
                                              const std::string& destination,
                                              const WriterOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const HeldPaths held, HoldThere(roots, destination, options));
  const std::string& path = held.known.final;
  const UniqueFd* folder = &held.folder;
  UniqueFd own;
  std::vector<MetadataPlace> places;
  const std::string side = BaseOf(held.known.Side());
  if (held.known.folder) {
    own = OpenWithin(held.folder, BaseOf(path), O_RDONLY | O_DIRECTORY);
    if (!own) return CannotOpen(path, errno);
    folder = &own;
    places = PlacesOfMetadata();
  } else {
    places = {{side.c_str(), nlohmann::json::json_pointer()}};
  }
  for (const auto& [file, within] : places) {
    const UniqueFd fd = OpenWithin(*folder, file, O_RDONLY | O_NONBLOCK);
    if (!fd) continue;
    OCTAVO_ASSIGN_OR_RETURN(const nlohmann::json read, ReadJsonFile(fd.get(), file));
    const auto processing = within / "processing";
    if (read.is_object() && read.contains(processing)) return read[processing];
  }
  return absl::DataLossError(absl::StrCat(path, " does not say how it was made"));
}

}  // namespace octavo::storage
