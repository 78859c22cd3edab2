#include "server/storage/manifest.h"

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "nlohmann/json.hpp"
#include "server/storage/crc32c.h"
#include "server/storage/files.h"

namespace octavo::storage {

std::string Manifest::ToJson() const {
  nlohmann::json list = nlohmann::json::array();
  for (const File& file : files) list.push_back({{"path", file.path}, {"bytes", file.bytes}, {"crc32c", file.crc32c}});
  return nlohmann::json{{"octavo_manifest", 1}, {"raw_bytes", raw_bytes}, {"checksum", checksum}, {"files", list}}.dump(1);
}

absl::StatusOr<Manifest> Manifest::FromJson(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    Manifest manifest{.files = {}, .raw_bytes = json.at("raw_bytes"), .checksum = json.at("checksum")};
    for (const auto& file : json.at("files")) {
      manifest.files.push_back({.path = file.at("path"), .bytes = file.at("bytes"), .crc32c = file.at("crc32c")});
    }
    return manifest;
  } catch (const nlohmann::json::exception& e) {
    return absl::DataLossError(absl::StrCat("damaged manifest: ", e.what()));
  }
}

absl::Status VerifyFile(const std::string& path, const Manifest::File& file) {
  const auto text = ReadWholeFile(path);
  if (!text.ok()) return absl::DataLossError(absl::StrCat(path, ": ", text.status().message()));
  if (static_cast<int64_t>(text->size()) != file.bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", text->size(), " bytes; the manifest says ", file.bytes));
  }
  if (Crc32c(text->data(), text->size()) != file.crc32c) return absl::DataLossError(absl::StrCat(path, " has another CRC than the manifest says"));
  return absl::OkStatus();
}

absl::StatusOr<Manifest> VerifyDirectory(const std::string& directory) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(absl::StrCat(directory, "/", kManifestName)));
  OCTAVO_ASSIGN_OR_RETURN(Manifest manifest, Manifest::FromJson(text));
  for (const auto& file : manifest.files) OCTAVO_RETURN_IF_ERROR(VerifyFile(absl::StrCat(directory, "/", file.path), file));
  return manifest;
}

}  // namespace octavo::storage
