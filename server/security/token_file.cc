#include "server/security/token_file.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "gpu/base/status.h"
#include "server/security/secret_file.h"

namespace octavo::security {
namespace {

constexpr char kFirstLine[] = R"({"octavo_tokens":1})";

absl::Status Damaged(size_t line, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat("line ", line, ": ", what));
}

// The members of a line, all of them texts. A line that names one twice has two meanings, and is
// refused.
absl::StatusOr<std::map<std::string, std::string>> MembersOf(absl::string_view line,
                                                             size_t number) {
  std::set<std::string> seen;
  bool twice = false, deep = false;
  const auto look = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    deep = deep || depth > 1;
    if (event == nlohmann::json::parse_event_t::key)
      twice = !seen.insert(value.get<std::string>()).second || twice;
    return !deep;
  };
  const auto json = nlohmann::json::parse(line.begin(), line.end(), look, false);
  if (deep || !json.is_object()) return Damaged(number, "is no flat object of JSON");
  if (twice) return Damaged(number, "names a member twice");
  std::map<std::string, std::string> members;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Damaged(number, absl::StrCat("'", key, "' is no text"));
    members[key] = value.get<std::string>();
  }
  return members;
}

absl::StatusOr<TokenRecord> RecordOf(absl::string_view line, size_t number) {
  OCTAVO_ASSIGN_OR_RETURN(auto members, MembersOf(line, number));
  const auto take = [&](const char* key) {
    const auto node = members.extract(key);
    return node.empty() ? std::string() : node.mapped();
  };
  TokenRecord record;
  record.id = take("id");
  if (record.id.size() != 8 || record.id.find_first_not_of("0123456789abcdef") != std::string::npos)
    return Damaged(number, "'id' is not 8 hex digits");
  const std::string hash = take("sha256");
  if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != std::string::npos)
    return Damaged(number, "'sha256' is not 64 hex digits");
  record.sha256 = absl::HexStringToBytes(hash);
  record.name = take("name");
  if (!IsTokenName(record.name))
    return Damaged(number, absl::StrCat("'name' is no name; allowed ", kTokenNameRule));
  const std::string role_name = take("role");
  const auto role = RoleNamed(role_name);
  if (!role.has_value() || *role == Role::kNone)
    return Damaged(number, absl::StrCat("'role' is '", role_name.substr(0, 40),
                                        "'; allowed viewer, operator, admin"));
  record.role = *role;
  record.project = take("project");
  if (!record.project.empty() && !IsTokenName(record.project))
    return Damaged(number, absl::StrCat("'project' is no name; allowed ", kTokenNameRule));
  const auto created = TimeOf(take("created"));
  if (!created.has_value())
    return Damaged(number, "'created' is no time; allowed is one as 2027-01-31T12:00:00Z");
  record.created = *created;
  if (members.contains("expires")) {
    const auto expires = TimeOf(take("expires"));
    if (!expires.has_value() || *expires == 0)
      return Damaged(number, "'expires' is no time; allowed is one as 2027-01-31T12:00:00Z");
    record.expires = *expires;
  }
  if (!members.empty())
    return Damaged(number, absl::StrCat("'", members.begin()->first, "' is no member of a token"));
  return record;
}

}  // namespace

absl::StatusOr<std::vector<TokenRecord>> ParseTokens(absl::string_view text) {
  if (text.empty() || text.back() != '\n')
    return absl::FailedPreconditionError(text.empty() ? "is empty"
                                                      : "ends in the middle of a line");
  text.remove_suffix(1);
  std::vector<TokenRecord> tokens;
  std::set<std::string> ids;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (number == 1) {
      if (line != kFirstLine)
        return Damaged(1, absl::StrCat("is not ", kFirstLine, ": this is no file of tokens"));
      continue;
    }
    if (number > kMostTokens + 1)
      return Damaged(number, absl::StrCat("is more than ", kMostTokens, " tokens"));
    OCTAVO_ASSIGN_OR_RETURN(TokenRecord record, RecordOf(line, number));
    if (!ids.insert(record.id).second)
      return Damaged(number, absl::StrCat("has the id ", record.id, " of another token"));
    tokens.push_back(std::move(record));
  }
  return tokens;
}

std::string FormatTokens(const std::vector<TokenRecord>& tokens) {
  std::string text = absl::StrCat(kFirstLine, "\n");
  for (const TokenRecord& token : tokens) {
    nlohmann::ordered_json line = {{"id", token.id},
                                   {"sha256", absl::BytesToHexString(token.sha256)},
                                   {"name", token.name},
                                   {"role", std::string(Name(token.role))}};
    if (!token.project.empty()) line["project"] = token.project;
    line["created"] = TimeText(token.created);
    if (token.expires != 0) line["expires"] = TimeText(token.expires);
    absl::StrAppend(&text, line.dump(), "\n");
  }
  return text;
}

absl::StatusOr<std::vector<TokenRecord>> ListTokens(const std::string& path) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path, Owners::kAnyIfRootReads));
  auto tokens = ParseTokens(text);
  if (!tokens.ok()) return Annotate(tokens.status(), path);
  return tokens;
}

absl::Status ChangeTokens(const std::string& path, bool create,
                          const std::function<absl::Status(std::vector<TokenRecord>*)>& change) {
  return ChangeSecretFile(path, create, [&](const std::string& now) -> absl::StatusOr<std::string> {
    std::vector<TokenRecord> tokens;
    // A file that was just made is empty; another empty one is damaged, and `octavo token add`
    // mends it as well: it holds nothing that could be lost.
    if (!now.empty()) {
      auto parsed = ParseTokens(now);
      if (!parsed.ok()) return Annotate(parsed.status(), path);
      tokens = *std::move(parsed);
    }
    OCTAVO_RETURN_IF_ERROR(change(&tokens));
    if (tokens.size() > kMostTokens)
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": holds ", kMostTokens, " tokens already; revoke some"));
    return FormatTokens(tokens);
  });
}

}  // namespace octavo::security
