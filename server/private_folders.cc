#include "server/private_folders.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/lies_in.h"

namespace octavo {
namespace {

/// As it is configured, and where it is if a link leads there.
std::string Shown(const std::string& path, const std::string& real) {
  return path == real ? absl::StrCat("'", path, "'") : absl::StrCat("'", path, "' (", real, ")");
}

}  // namespace

absl::Status CheckPrivateFolders(const Config& config) {
  const std::pair<const char*, const std::vector<std::string>*> roots[] = {
      {"storage.roots", &config.storage_roots}, {"storage.replay_roots", &config.replay_roots}};
  for (const auto& [key, folder] :
       {std::pair("state.dir", &config.state_dir), std::pair("spill.dir", &config.spill_dir),
        std::pair("history.dir", &config.history_dir), std::pair("audit.dir", &config.audit_dir)}) {
    if (folder->empty()) continue;  // there is none
    const std::string at = base::RealPathOf(*folder);
    for (const auto& [root_key, paths] : roots) {
      for (const std::string& root : *paths) {
        const std::string real_root = base::RealPathOf(root);
        if (!base::LiesIn(at, real_root)) continue;
        return InvalidField(
            key, absl::StrCat("is ", Shown(*folder, at), ", which lies in ", Shown(root, real_root),
                              " of ", root_key,
                              ": clients could write or read there; allowed are folders outside of "
                              "all storage and replay roots"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo
