#include "server/security/credential.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace octavo::security {
namespace {

// The folder; empty if there is none.
std::string Folder() {
  const char* const folder = std::getenv("CREDENTIALS_DIRECTORY");
  if (folder == nullptr || *folder != '/') return "";
  std::string text = std::filesystem::path(folder).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace

absl::StatusOr<std::string> ExpandCredential(const std::string& path) {
  absl::string_view name = path;
  if (!absl::ConsumePrefix(&name, "credential:")) return path;
  if (name.empty() || name == "." || name == ".." || name.find('/') != absl::string_view::npos)
    return absl::InvalidArgumentError(
        absl::StrCat("is '", path, "'; allowed is credential:NAME with a name without /"));
  const std::string folder = Folder();
  if (folder.empty())
    return absl::FailedPreconditionError(absl::StrCat(
        "is '", path, "', but systemd gave this process no credentials ",
        "(CREDENTIALS_DIRECTORY is not set); allowed is a path, or LoadCredential=", name,
        ":/path in the unit"));
  return absl::StrCat(folder, "/", name);
}

bool IsCredential(const std::string& path) {
  const std::string folder = Folder();
  return !folder.empty() && std::filesystem::path(path).lexically_normal().parent_path() == folder;
}

}  // namespace octavo::security
