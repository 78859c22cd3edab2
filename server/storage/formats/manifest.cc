#include "server/storage/formats/manifest.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_members.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {

namespace {
// Members are sorted and the form is compact, so that reading and writing a manifest gives the same
// bytes.
uint32_t CrcOf(const nlohmann::json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return Crc32c(text.data(), text.size());
}
}  // namespace

std::string Manifest::ToJson() const {
  nlohmann::json list = nlohmann::json::array();
  for (const File& file : files)
    list.push_back({{"path", file.path}, {"bytes", file.bytes}, {"crc32c", file.crc32c}});
  nlohmann::json json = {{"octavo_manifest", 1},
                         {"commit", commit},
                         {"raw_bytes", raw_bytes},
                         {"checksum", checksum},
                         {"files", list}};
  json["manifest_crc32c"] = CrcOf(json);
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {
absl::Status ReadManifestJson(nlohmann::json& json, Manifest* manifest) {
  uint32_t crc = 0;
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "manifest_crc32c", &crc));
  json.erase("manifest_crc32c");
  if (CrcOf(json) != crc) return absl::DataLossError("it has another CRC than it says");
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "commit", &manifest->commit));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "raw_bytes", &manifest->raw_bytes));
  OCTAVO_RETURN_IF_ERROR(ReadMember(json, "checksum", &manifest->checksum));
  OCTAVO_ASSIGN_OR_RETURN(const nlohmann::json* const files, Member(json, "", "files"));
  if (!files->is_array()) return BadValue("files", *files, "are arrays");
  manifest->files.resize(files->size());
  for (size_t i = 0; i < files->size(); ++i) {
    const std::string where = absl::StrCat("files[", i, "]");
    Manifest::File& file = manifest->files[i];
    OCTAVO_RETURN_IF_ERROR(ReadMember((*files)[i], "path", &file.path, where));
    OCTAVO_RETURN_IF_ERROR(ReadMember((*files)[i], "bytes", &file.bytes, where));
    OCTAVO_RETURN_IF_ERROR(ReadMember((*files)[i], "crc32c", &file.crc32c, where));
  }
  return absl::OkStatus();
}
}  // namespace

absl::StatusOr<Manifest> Manifest::FromJson(const std::string& text) {
  auto parsed = ParseJson(text, kManifestLimits);
  if (!parsed.ok())
    return absl::DataLossError(absl::StrCat("damaged manifest: it ", parsed.status().message()));
  Manifest manifest;
  if (const absl::Status read = ReadManifestJson(*parsed, &manifest); !read.ok())
    return absl::DataLossError(absl::StrCat("damaged manifest: ", read.message()));
  return manifest;
}

absl::StatusOr<Manifest::File> DescribeFile(const UniqueFd& fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0)
    return absl::DataLossError(ErrnoStatus(errno, "examining", path).message());
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is no regular file"));
  Manifest::File file{.path = "", .bytes = info.st_size, .crc32c = 0};
  std::vector<char> piece(static_cast<size_t>(std::min<int64_t>(file.bytes, 1 << 20)));
  for (int64_t at = 0; at < file.bytes; at += std::ssize(piece)) {
    piece.resize(static_cast<size_t>(std::min(file.bytes - at, std::ssize(piece))));
    const absl::Status read = ReadAllAt(fd.get(), path, piece.data(), piece.size(), at);
    if (!read.ok()) return absl::DataLossError(read.message());
    file.crc32c = Crc32c(piece.data(), piece.size(), file.crc32c);
  }
  return file;
}

absl::Status VerifyFile(const UniqueFd& fd, const std::string& path, const Manifest::File& file) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0)
    return absl::DataLossError(ErrnoStatus(errno, "examining", path).message());
  if (info.st_size != file.bytes) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", info.st_size, " bytes; the manifest says ", file.bytes));
  }
  OCTAVO_ASSIGN_OR_RETURN(const Manifest::File found, DescribeFile(fd, path));
  if (found.crc32c != file.crc32c)
    return absl::DataLossError(absl::StrCat(path, " has another CRC than the manifest says"));
  return absl::OkStatus();
}

absl::StatusOr<Manifest> ReadManifest(const UniqueFd& folder, const std::string& path) {
  const std::string name = absl::StrCat(path, "/", kManifestName);
  const UniqueFd fd = OpenWithin(folder, kManifestName, O_RDONLY | O_NONBLOCK);
  if (!fd) return ErrnoStatus(errno, "opening", name);
  OCTAVO_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(fd.get(), name, kManifestLimits.bytes));
  auto manifest = Manifest::FromJson(text);
  if (!manifest.ok()) return Annotate(manifest.status(), name);
  return manifest;
}

absl::StatusOr<Manifest> VerifyDirectory(const UniqueFd& folder, const std::string& path) {
  OCTAVO_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(folder, path));
  for (const auto& file : manifest.files) {
    const std::string name = absl::StrCat(path, "/", file.path);
    const UniqueFd fd = OpenWithin(folder, file.path, O_RDONLY | O_NONBLOCK);
    if (!fd) return absl::DataLossError(ErrnoStatus(errno, "opening", name).message());
    OCTAVO_RETURN_IF_ERROR(VerifyFile(fd, name, file));
  }
  return manifest;
}

absl::StatusOr<Manifest> VerifyDirectory(const std::string& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return ErrnoStatus(errno, "opening", path);
  return VerifyDirectory(folder, path);
}

}  // namespace octavo::storage
