#include "server/storage/manifest.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/crc32c.h"
#include "server/storage/files.h"
#include "server/storage/writer.h"

namespace octavo::storage {

namespace {
// Members are sorted and the form is compact, so that what was read can be written again to the same bytes.
uint32_t CrcOf(const nlohmann::json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return Crc32c(text.data(), text.size());
}
}  // namespace

std::string Manifest::ToJson() const {
  nlohmann::json list = nlohmann::json::array();
  for (const File& file : files) list.push_back({{"path", file.path}, {"bytes", file.bytes}, {"crc32c", file.crc32c}});
  nlohmann::json json = {{"octavo_manifest", 1}, {"commit", commit}, {"raw_bytes", raw_bytes}, {"checksum", checksum}, {"files", list}};
  json["manifest_crc32c"] = CrcOf(json);
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<Manifest> Manifest::FromJson(const std::string& text) {
  // A file takes four values; a volume of small chunks has millions of files.
  auto parsed = ParseJson(text, {.bytes = size_t{1} << 30, .depth = 8, .values = size_t{1} << 25});
  if (!parsed.ok()) return absl::DataLossError(absl::StrCat("damaged manifest: it ", parsed.status().message()));
  try {
    nlohmann::json& json = *parsed;
    const uint32_t crc = json.at("manifest_crc32c");
    json.erase("manifest_crc32c");
    if (CrcOf(json) != crc) return absl::DataLossError("damaged manifest: it has another CRC than it says");
    Manifest manifest{.commit = json.at("commit"), .files = {}, .raw_bytes = json.at("raw_bytes"), .checksum = json.at("checksum")};
    for (const auto& file : json.at("files")) {
      manifest.files.push_back({.path = file.at("path"), .bytes = file.at("bytes"), .crc32c = file.at("crc32c")});
    }
    return manifest;
  } catch (const nlohmann::json::exception& e) {
    return absl::DataLossError(absl::StrCat("damaged manifest: ", e.what()));
  }
}

absl::StatusOr<Manifest::File> DescribeFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return absl::DataLossError(ErrnoStatus(errno, "opening", path).message());
  Manifest::File file{.path = "", .bytes = info.st_size, .crc32c = 0};
  std::vector<char> piece(static_cast<size_t>(std::min<int64_t>(file.bytes, 1 << 20)));
  for (int64_t left = file.bytes; left > 0;) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::DataLossError(ErrnoStatus(n < 0 ? errno : EIO, "reading", path).message());
    file.crc32c = Crc32c(piece.data(), static_cast<size_t>(n), file.crc32c);
    left -= n;
  }
  return file;
}

absl::Status VerifyFile(const std::string& path, const Manifest::File& file) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return absl::DataLossError(ErrnoStatus(errno, "opening", path).message());
  if (info.st_size != file.bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", info.st_size, " bytes; the manifest says ", file.bytes));
  }
  OCTAVO_ASSIGN_OR_RETURN(const Manifest::File found, DescribeFile(path));
  if (found.crc32c != file.crc32c) return absl::DataLossError(absl::StrCat(path, " has another CRC than the manifest says"));
  return absl::OkStatus();
}

absl::StatusOr<Manifest> VerifyDirectory(const std::string& directory) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(absl::StrCat(directory, "/", kManifestName)));
  OCTAVO_ASSIGN_OR_RETURN(Manifest manifest, Manifest::FromJson(text));
  for (const auto& file : manifest.files) OCTAVO_RETURN_IF_ERROR(VerifyFile(absl::StrCat(directory, "/", file.path), file));
  return manifest;
}

}  // namespace octavo::storage
