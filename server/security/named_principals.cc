#include "server/security/named_principals.h"

#include <algorithm>
#include <set>
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

std::vector<std::string> NamedPrincipals::Unknown() const {
  std::set<std::string> known = {"loopback", "remote"};  // callers by TCP without a proof
  if (callers_.tokens != nullptr) known.merge(callers_.tokens->Names());
  if (callers_.certificates != nullptr) known.merge(callers_.certificates->Names());
  const std::vector<std::string> all(known.begin(), known.end());
  std::vector<std::string> lines;
  for (const Name& one : names_) {
    const bool of_certificate = one.name.find(':') != std::string::npos;
    if (known.count(one.name) > 0 || IsUser(one.name) ||
        (of_certificate && callers_.any_certificate && !one.name.starts_with("uid:")))
      continue;
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
