#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/security/token.h"
#include "server/security/watched_file.h"

namespace octavo::security {

/// The tokens that the server takes, from a file (token_file.h). Thread-safe.
class TokenStore {
 public:
  /// Seconds since 1970.
  using Now = std::function<int64_t()>;

  /// Reads the file; its errors are those of ReadSecretFile and ParseTokens, and name it.
  static absl::StatusOr<std::unique_ptr<TokenStore>> Open(const std::string& path,
                                                          Now now = SystemSeconds);

  /// The record of a token that a client has sent. Unauthenticated if it has not the form of a
  /// token, is not known or has expired; the message tells no part of it.
  absl::StatusOr<TokenRecord> Check(absl::string_view token) const;

  /// The record of a token that was checked before, by its id: Unauthenticated if it has been
  /// revoked or has expired since.
  absl::StatusOr<TokenRecord> Again(const std::string& id) const;

  /// Those to whom tokens were issued, expired ones too.
  std::set<std::string> Names() const;

  /// The highest role of the valid tokens of a name in a project; none if there are none.
  Role RoleOf(const std::string& name, const std::string& project) const;

  /// Likewise, in whichever project.
  Role RoleOf(const std::string& name) const;

  /// As WatchedFile::Look.
  void Look() { file_.Look(); }
  /// As WatchedFile::Refused.
  std::string Refused() const { return file_.Refused(); }

  struct Counts {
    int64_t tokens = 0, reloads = 0, reload_errors = 0;
  };
  Counts Count() const;
  const std::string& path() const { return file_.path(); }

  static int64_t SystemSeconds();

 private:
  using Tokens = std::map<std::string, TokenRecord, std::less<>>;  // by id
  TokenStore(std::string path, Now now);
  absl::Status CheckExpiry(const TokenRecord& token) const;

  const Now now_;
  WatchedFile<Tokens> file_;
};

}  // namespace octavo::security
