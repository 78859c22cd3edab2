#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/security/owner.h"

namespace octavo::security {

/// Whether a principal could have this name: a colon stands in those of users and certificates
/// alone ("uid:1000", "cn:anna"), so that "anna:" is a slip of the pen.
bool CouldBePrincipal(absl::string_view name);

/// Which storage roots a principal may name, for commits and imports. Whoever has no line may name
/// all of them; admins need a line of their own to be bound.
class RootRights {
 public:
  /// "anna=/data/anna", "role:viewer=/data/shared", "*=/data/shared" (whoever has no line by name
  /// or role); several lines for one are several roots. InvalidArgument says what is wrong, without
  /// a name of a field.
  absl::Status Add(absl::string_view text);
  /// The roots of all lines, without a slash at the end.
  const std::vector<std::string>& named() const { return named_; }

  /// Those that have lines by name.
  std::vector<std::string> principals() const;

  /// Nothing: all.
  std::optional<std::vector<std::string>> RootsOf(const Owner& who) const;
  /// Those of `roots` that the principal may name.
  std::vector<std::string> Among(const std::vector<std::string>& roots, const Owner& who) const;
  /// OK, or PermissionDenied (OUTSIDE_ROOTS) if `path` (absolute, links resolved) lies in none of
  /// the principal's roots. `given`: as the client wrote it.
  absl::Status Check(const Owner& who, const std::string& path, absl::string_view field,
                     absl::string_view given) const;

 private:
  std::map<std::string, std::vector<std::string>> roots_of_;  // by name, "role:viewer", "*"
  std::vector<std::string> named_;
};

}  // namespace octavo::security
