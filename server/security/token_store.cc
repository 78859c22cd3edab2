#include "server/security/token_store.h"

#include <chrono>
#include <openssl/crypto.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/security/secret_file.h"
#include "server/security/token_file.h"

namespace octavo::security {
namespace {

std::shared_ptr<const std::map<std::string, TokenRecord, std::less<>>> ById(
    std::vector<TokenRecord> tokens) {
  auto by_id = std::make_shared<std::map<std::string, TokenRecord, std::less<>>>();
  for (TokenRecord& token : tokens) {
    std::string id = token.id;
    by_id->emplace(std::move(id), std::move(token));
  }
  return by_id;
}

}  // namespace

int64_t TokenStore::SystemSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

absl::StatusOr<std::unique_ptr<TokenStore>> TokenStore::Open(const std::string& path, Now now) {
  std::unique_ptr<TokenStore> store(new TokenStore(path, std::move(now)));
  OCTAVO_ASSIGN_OR_RETURN(std::string text, ReadSecretFile(path));
  auto tokens = ParseTokens(text);
  if (!tokens.ok()) return Annotate(tokens.status(), path);
  MutexLock lock(store->mutex_);
  store->tokens_ = ById(*std::move(tokens));
  store->last_seen_ = std::move(text);
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
  std::shared_ptr<const Tokens> tokens;
  {
    MutexLock lock(mutex_);
    tokens = tokens_;
  }
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
  std::shared_ptr<const Tokens> tokens;
  {
    MutexLock lock(mutex_);
    tokens = tokens_;
  }
  const auto it = tokens->find(id);
  if (it == tokens->end()) return absl::UnauthenticatedError("the bearer token was revoked");
  OCTAVO_RETURN_IF_ERROR(CheckExpiry(it->second));
  return it->second;
}

void TokenStore::Look() {
  auto text = ReadSecretFile(path_);
  std::string seen = text.ok() ? *text : absl::StrCat("?", text.status().message());
  {
    MutexLock lock(mutex_);
    if (seen == last_seen_) return;
    last_seen_ = seen;
  }
  absl::StatusOr<std::vector<TokenRecord>> tokens =
      text.ok() ? ParseTokens(*text) : absl::StatusOr<std::vector<TokenRecord>>(text.status());
  if (!tokens.ok()) {
    {
      MutexLock lock(mutex_);
      ++reload_errors_;
    }
    Log(LogLevel::kError, "the file of tokens cannot be used; the tokens before it stay valid",
        {{"file", path_}, {"error", std::string(tokens.status().message())}});
    return;
  }
  const size_t count = tokens->size();
  {
    MutexLock lock(mutex_);
    tokens_ = ById(*std::move(tokens));
    ++reloads_;
  }
  Log(LogLevel::kInfo, "tokens read again", {{"file", path_}, {"tokens", count}});
}

TokenStore::Counts TokenStore::Count() const {
  MutexLock lock(mutex_);
  return {.tokens = static_cast<int64_t>(tokens_->size()),
          .reloads = reloads_,
          .reload_errors = reload_errors_};
}

}  // namespace octavo::security
