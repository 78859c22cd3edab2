#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/base/mutex.h"
#include "server/security/token.h"

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

  /// Reads the file again, and takes it over if it has changed and is sound; a bad one keeps the
  /// old tokens, is logged and counted, once. Call it now and then.
  void Look();

  struct Counts {
    int64_t tokens = 0, reloads = 0, reload_errors = 0;
  };
  Counts Count() const;
  const std::string& path() const { return path_; }

  static int64_t SystemSeconds();

 private:
  using Tokens = std::map<std::string, TokenRecord, std::less<>>;  // by id
  TokenStore(std::string path, Now now) : path_(std::move(path)), now_(std::move(now)) {}
  absl::Status CheckExpiry(const TokenRecord& token) const;

  const std::string path_;
  const Now now_;
  mutable Mutex mutex_;
  std::shared_ptr<const Tokens> tokens_ ABSL_GUARDED_BY(mutex_);
  // The text of the file when it was read last, or why it could not be read.
  std::string last_seen_ ABSL_GUARDED_BY(mutex_);
  int64_t reloads_ ABSL_GUARDED_BY(mutex_) = 0, reload_errors_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace octavo::security
