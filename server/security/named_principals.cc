#include "server/security/named_principals.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "gpu/base/log.h"
#include "gpu/base/spelling.h"

namespace octavo::security {
namespace {

/// Of the Unix socket: every user of the host may have one, so the number alone is looked at.
bool IsUser(absl::string_view name) {
  return absl::ConsumePrefix(&name, "uid:") && !name.empty() &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

}  // namespace

std::set<std::string> NamedPrincipals::Known() const {
  std::set<std::string> known = {"loopback", "remote"};
  if (callers_.tokens != nullptr) known.merge(callers_.tokens->Names());
  if (callers_.certificates != nullptr) known.merge(callers_.certificates->Names());
  return known;
}

bool NamedPrincipals::MayBeKnown(const std::string& name) const {
  const bool of_certificate = name.find(':') != std::string::npos;
  return IsUser(name) || (of_certificate && callers_.any_certificate && !name.starts_with("uid:"));
}

std::string NamedPrincipals::WhyNoHelp(const std::string& grantee) const {
  const std::set<std::string> known = Known();
  if (!known.contains(grantee)) {
    if (MayBeKnown(grantee)) return "";
    // The text suggests no name: an operator must not learn from guesses which principals exist.
    return "no token, line of a certificate or user (uid:<number>) has this name, so that it helps "
           "nobody until one has";
  }
  Role role = Role::kNone;
  if (callers_.tokens != nullptr) role = callers_.tokens->RoleOf(grantee);
  if (callers_.certificates != nullptr)
    role = std::max(role, callers_.certificates->RoleOf(grantee));
  if (role >= Role::kOperator) return "";
  return absl::StrCat("whoever has this name has the role ", security::Name(role),
                      " now, which may change nothing; operator or admin is needed");
}

std::vector<std::string> NamedPrincipals::Unknown() const {
  const std::set<std::string> known = Known();
  const std::vector<std::string> all(known.begin(), known.end());
  std::vector<std::string> lines;
  for (const Name& one : names_) {
    if (known.contains(one.name) || MayBeKnown(one.name)) continue;
    lines.push_back(absl::StrCat(one.key, " names '", one.name,
                                 "', which no token, line of a certificate or user (uid:<number>) "
                                 "has, so that it binds nobody",
                                 DidYouMean(one.name, all)));
  }
  return lines;
}

void NamedPrincipals::Look() {
  if (names_.empty()) return;
  int64_t reloads = 0;
  if (callers_.tokens != nullptr) reloads += callers_.tokens->Count().reloads;
  if (callers_.certificates != nullptr) reloads += callers_.certificates->Count().reloads;
  {
    MutexLock lock(mutex_);
    if (seen_ == reloads) return;
    seen_ = reloads;
  }
  for (const std::string& line : Unknown())
    Log(LogLevel::kWarning, "the configuration names nobody", {{"what", line}});
}

}  // namespace octavo::security
