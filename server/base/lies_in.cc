#include "server/base/lies_in.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace octavo::base {

std::string RealPathOf(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(path, error);
  return error ? path : real.string();
}

bool LiesIn(absl::string_view path, absl::string_view folder) {
  const absl::string_view plain = absl::StripSuffix(folder, "/");
  return path == plain || path == folder ||
         (absl::StartsWith(path, plain) && path.size() > plain.size() && path[plain.size()] == '/');
}

}  // namespace octavo::base
