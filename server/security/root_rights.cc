#include "server/security/root_rights.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "server/base/lies_in.h"

namespace octavo::security {
namespace {

/// A root has one spelling, however it is configured.
absl::string_view Plain(absl::string_view root) { return absl::StripSuffix(root, "/"); }

}  // namespace

bool CouldBePrincipal(absl::string_view name) {
  const size_t colon = name.find(':');
  if (colon == absl::string_view::npos) return !name.empty();
  const absl::string_view kind = name.substr(0, colon);
  return colon + 1 < name.size() && (kind == "uid" || kind == "cn" || kind == "email" ||
                                     kind == "dns" || kind == "uri" || kind == "sha256");
}

absl::Status RootRights::Add(absl::string_view text) {
  const size_t equals = text.find('=');
  const absl::string_view who = text.substr(0, equals);
  const absl::string_view root =
      equals == absl::string_view::npos ? absl::string_view() : text.substr(equals + 1);
  absl::string_view role = who;
  const bool is_role = absl::ConsumePrefix(&role, "role:");
  if ((!is_role && !CouldBePrincipal(who)) || !absl::StartsWith(root, "/") ||
      (is_role && RoleNamed(role).value_or(Role::kNone) == Role::kNone))
    return absl::InvalidArgumentError(
        absl::StrCat("is '", text,
                     "'; allowed is <name of a principal>=<root>, role:<viewer, operator, "
                     "admin>=<root> or *=<root>, with the absolute path of a root"));
  const std::string plain(
      Plain(std::filesystem::path(std::string(root)).lexically_normal().string()));
  roots_of_[std::string(who)].push_back(plain);
  named_.push_back(plain);
  return absl::OkStatus();
}

std::vector<std::string> RootRights::principals() const {
  std::vector<std::string> names;
  for (const auto& [name, roots] : roots_of_) {
    if (name != "*" && !absl::StartsWith(name, "role:")) names.push_back(name);
  }
  return names;
}

std::optional<std::vector<std::string>> RootRights::RootsOf(const Owner& who) const {
  auto it = roots_of_.find(who.name);
  if (it == roots_of_.end()) it = roots_of_.find(absl::StrCat("role:", Name(who.role)));
  if (it == roots_of_.end() && who.role != Role::kAdmin) it = roots_of_.find("*");
  if (it == roots_of_.end() || who.name.empty()) return std::nullopt;
  return it->second;
}

std::vector<std::string> RootRights::Among(const std::vector<std::string>& roots,
                                           const Owner& who) const {
  const auto allowed = RootsOf(who);
  if (!allowed.has_value()) return roots;
  std::vector<std::string> out;
  for (const std::string& root : roots) {
    if (std::find(allowed->begin(), allowed->end(), Plain(root)) != allowed->end())
      out.push_back(root);
  }
  return out;
}

absl::Status RootRights::Check(const Owner& who, const std::string& path, absl::string_view field,
                               absl::string_view given) const {
  const auto allowed = RootsOf(who);
  if (!allowed.has_value() ||
      std::any_of(allowed->begin(), allowed->end(), [&](const std::string& root) {
        return base::LiesIn(path, root) || base::LiesIn(path, base::RealPathOf(root));
      }))
    return absl::OkStatus();
  const std::string roots = absl::StrJoin(*allowed, ", ");
  return WithInfo(absl::PermissionDeniedError(
                      absl::StrCat(field, ": '", given, "' lies in a storage root that ", who.name,
                                   " may not use; allowed are absolute paths below ", roots,
                                   " (quota.roots of the server's configuration)")),
                  {.reason = Reason::kOutsideRoots,
                   .field = std::string(field),
                   .numbers = {{"principal", who.name}, {"roots", roots}}});
}

}  // namespace octavo::security
