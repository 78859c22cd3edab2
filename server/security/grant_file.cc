#include "server/security/grant_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

#include "gpu/base/status.h"
#include "server/security/rights.h"
#include "server/security/token.h"

namespace octavo::security {
namespace {

constexpr char kFormat[] = "octavo grants 1";

absl::Status Damaged(absl::string_view what) { return absl::FailedPreconditionError(what); }

std::string TextAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

/// 0 for what is no number of nanoseconds after 1970.
int64_t TimeAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) return 0;
  const auto ns = it->get<uint64_t>();
  return ns <= static_cast<uint64_t>(INT64_MAX) ? static_cast<int64_t>(ns) : 0;
}

std::optional<Grant> GrantOf(const nlohmann::json& in) {
  if (!in.is_object()) return std::nullopt;
  Grant grant{.name = TextAt(in, "name"),
              .object = TextAt(in, "object"),
              .grantee = TextAt(in, "grantee"),
              .owner = {.name = TextAt(in, "owner"), .project = TextAt(in, "project")},
              .created_unix_ns = TimeAt(in, "created_unix_ns"),
              .expires_unix_ns = TimeAt(in, "expires_unix_ns")};
  // An object that is missing must not become all objects.
  const bool object = in.contains("object") && in["object"].is_string() &&
                      (grant.object.empty() || IsGrantable(grant.object));
  const bool project = in.contains("project") && in["project"].is_string() &&
                       (grant.owner.project.empty() || IsTokenName(grant.owner.project));
  if (!absl::StartsWith(grant.name, "grants/") || !object || !CouldBeGrantee(grant.grantee) ||
      !IsIdentity(grant.owner.name) || !project || grant.created_unix_ns == 0 ||
      grant.expires_unix_ns == 0)
    return std::nullopt;
  return grant;
}

}  // namespace

absl::StatusOr<std::vector<Grant>> GrantFile::Parse(const std::string& text) const {
  const auto in = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (in.is_discarded() || !in.is_object()) return Damaged("it is no JSON object, or torn");
  if (TextAt(in, "format") != kFormat)
    return Damaged(absl::StrCat("its format is not \"", kFormat, "\""));
  if (TextAt(in, "server_id") != server_id_)
    return Damaged(absl::StrCat("it is of the server ", TextAt(in, "server_id"), "; this one is ",
                                server_id_));
  const auto list = in.find("grants");
  if (list == in.end() || !list->is_array()) return Damaged("it has no list of grants");
  std::vector<Grant> grants;
  std::set<std::string> names;
  for (const auto& one : *list) {
    std::optional<Grant> grant = GrantOf(one);
    if (!grant.has_value() || !names.insert(grant->name).second)
      return Damaged(absl::StrCat("grant ", grants.size() + 1,
                                  " of its list is none, or has the name of another one"));
    grants.push_back(*std::move(grant));
  }
  return grants;
}

absl::StatusOr<std::vector<Grant>> GrantFile::Read(int64_t now_unix_ns, std::string* aside) const {
  const auto read = [&]() -> absl::StatusOr<std::vector<Grant>> {
    OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path_));
    return Parse(text);
  };
  auto grants = read();
  if (grants.ok()) return grants;
  if (absl::IsNotFound(grants.status())) return std::vector<Grant>();
  // A disk or a limit that refuses to read says nothing of the file, and the next start may read
  // it.
  if (!absl::IsFailedPrecondition(grants.status())) return grants.status();
  const std::string time =
      absl::FormatTime("%Y%m%dT%H%M%SZ", absl::FromUnixNanos(now_unix_ns), absl::UTCTimeZone());
  std::string to = absl::StrCat(path_, ".damaged-", time);
  struct stat taken {};
  for (int n = 1; ::lstat(to.c_str(), &taken) == 0; ++n)
    to = absl::StrCat(path_, ".damaged-", time, "-", n);
  if (std::rename(path_.c_str(), to.c_str()) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": cannot be used (", grants.status().message(),
                     "), and cannot be put aside: ", std::strerror(errno)));
  *aside = absl::StrCat(to, ": the file of grants was put aside, and nothing is granted any more: ",
                        grants.status().message());
  return std::vector<Grant>();
}

std::string GrantFile::TextOf(const std::vector<Grant>& grants) const {
  std::string text =
      absl::StrCat("{\"format\":\"", kFormat, "\",\"server_id\":\"", server_id_, "\",\"grants\":[");
  const char* before = "\n";
  for (const Grant& grant : grants) {
    const nlohmann::ordered_json line = {{"name", grant.name},
                                         {"object", grant.object},
                                         {"grantee", grant.grantee},
                                         {"owner", grant.owner.name},
                                         {"project", grant.owner.project},
                                         {"created_unix_ns", grant.created_unix_ns},
                                         {"expires_unix_ns", grant.expires_unix_ns}};
    absl::StrAppend(&text, std::exchange(before, ",\n"), line.dump());
  }
  absl::StrAppend(&text, "\n]}\n");
  return text;
}

absl::Status GrantFile::Write(absl::string_view text) const {
  const absl::Status written = ReplaceSecretFile(path_, text);
  if (written.ok() || InfoOf(written).reason == Reason::kDiskFull) return written;
  return WithInfo(absl::InternalError(written.message()),
                  {.reason = Reason::kIoError, .field = "", .numbers = {}});
}

}  // namespace octavo::security
