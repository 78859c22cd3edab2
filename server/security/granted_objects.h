#pragma once

#include <functional>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/string_view.h"

#include "server/security/owner.h"

namespace octavo::security {

/// What owners have granted to one principal (grant_book.h), at one moment.
class GrantedObjects {
 public:
  /// `object`: empty = every object of the owner.
  void Add(const Owner& owner, const std::string& object) {
    granted_.emplace(owner.name, owner.project, object);
  }
  /// Whether an object of this owner is among it: by its name, by that of what made it (`parent`;
  /// empty = nothing), or as one of all. The owner counts, too: what another one makes of a granted
  /// object has the same parent, and is not granted.
  bool Cover(const Owner& owner, absl::string_view object, absl::string_view parent) const {
    const auto has = [&](absl::string_view name) {
      return granted_.contains(std::tuple<absl::string_view, absl::string_view, absl::string_view>(
          owner.name, owner.project, name));
    };
    return has("") || (!object.empty() && has(object)) || (!parent.empty() && has(parent));
  }

 private:
  // Owner, its project, object.
  std::set<std::tuple<std::string, std::string, std::string>, std::less<>> granted_;
};

}  // namespace octavo::security
