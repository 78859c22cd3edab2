#include "server/security/token_store.h"

#include <algorithm>
#include <chrono>
#include <openssl/crypto.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/security/token_file.h"

namespace octavo::security {
namespace {

absl::StatusOr<std::map<std::string, TokenRecord, std::less<>>> ById(absl::string_view text) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<TokenRecord> tokens, ParseTokens(text));
  std::map<std::string, TokenRecord, std::less<>> by_id;
  for (TokenRecord& token : tokens) {
    std::string id = token.id;
    by_id.emplace(std::move(id), std::move(token));
  }
  return by_id;
}

}  // namespace

int64_t TokenStore::SystemSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TokenStore::TokenStore(std::string path, Now now)
    : now_(std::move(now)),
      file_(std::move(path), ById,
            {.bad = "the file of tokens cannot be used; the tokens before it stay valid",
             .changed = "tokens read again",
             .lines = "tokens"}) {}

absl::StatusOr<std::unique_ptr<TokenStore>> TokenStore::Open(const std::string& path, Now now) {
  std::unique_ptr<TokenStore> store(new TokenStore(path, std::move(now)));
  OCTAVO_RETURN_IF_ERROR(store->file_.Open());
  return store;
}

absl::Status TokenStore::CheckExpiry(const TokenRecord& token) const {
  if (token.expires == 0 || now_() < token.expires) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat("the bearer token expired at ", TimeText(token.expires)));
}

absl::StatusOr<TokenRecord> TokenStore::Check(absl::string_view token) const {
  const auto id = IdOfToken(token);
  if (!id.has_value())
    return absl::UnauthenticatedError(
        "the bearer token is malformed; it has the form octavo_<id>_<secret>, as octavo token add "
        "prints it");
  const std::shared_ptr<const Tokens> tokens = file_.Now();
  const std::string hash = HashOfToken(token);
  const auto it = tokens->find(*id);
  // A stranger learns neither from the answer nor from its time whether the id or the secret is
  // wrong.
  const std::string none(hash.size(), '\0');
  const std::string& wanted = it == tokens->end() ? none : it->second.sha256;
  const bool same =
      wanted.size() == hash.size() && CRYPTO_memcmp(wanted.data(), hash.data(), hash.size()) == 0;
  if (!same || it == tokens->end())
    return absl::UnauthenticatedError("the bearer token is not known: never issued, or revoked");
  OCTAVO_RETURN_IF_ERROR(CheckExpiry(it->second));
  return it->second;
}

absl::StatusOr<TokenRecord> TokenStore::Again(const std::string& id) const {
  const std::shared_ptr<const Tokens> tokens = file_.Now();
  const auto it = tokens->find(id);
  if (it == tokens->end()) return absl::UnauthenticatedError("the bearer token was revoked");
  OCTAVO_RETURN_IF_ERROR(CheckExpiry(it->second));
  return it->second;
}

std::set<std::string> TokenStore::Names() const {
  const std::shared_ptr<const Tokens> tokens = file_.Now();
  std::set<std::string> names;
  for (const auto& [id, token] : *tokens) names.insert(token.name);
  return names;
}

Role TokenStore::RoleOf(const std::string& name, const std::string& project) const {
  const std::shared_ptr<const Tokens> tokens = file_.Now();
  Role role = Role::kNone;
  for (const auto& [id, token] : *tokens) {
    if (token.name == name && token.project == project && CheckExpiry(token).ok())
      role = std::max(role, token.role);
  }
  return role;
}

Role TokenStore::RoleOf(const std::string& name) const {
  const std::shared_ptr<const Tokens> tokens = file_.Now();
  Role role = Role::kNone;
  for (const auto& [id, token] : *tokens) {
    if (token.name == name && CheckExpiry(token).ok()) role = std::max(role, token.role);
  }
  return role;
}

TokenStore::Counts TokenStore::Count() const {
  const auto counts = file_.Count();
  return {.tokens = counts.lines, .reloads = counts.reloads, .reload_errors = counts.reload_errors};
}

}  // namespace octavo::security
