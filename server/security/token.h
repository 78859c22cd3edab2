#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/security/role.h"

namespace octavo::security {

/// A bearer token: "octavo_<id>_<secret>", an id of 8 and a secret of 64 hex digits (256 random
/// bits). The id names it in lists and logs; the secret is shown once and stored nowhere.
std::string MakeToken();

/// The id of a text that has the form of a token; nothing if it has not.
std::optional<std::string> IdOfToken(absl::string_view text);

/// SHA-256 of the whole text, 32 bytes. The secret has 256 bits of chance, so that a slow hash
/// would protect nothing, and would let callers with wrong tokens keep the server busy.
std::string HashOfToken(absl::string_view text);

/// What is stored of a token.
struct TokenRecord {
  std::string id;
  std::string sha256;  // 32 bytes
  std::string name;    // of whoever has it: 1 to 64 of A-Z a-z 0-9 . _ @ -; not loopback, remote
  Role role = Role::kNone;
  std::string project;  // as the name; may be empty
  int64_t created = 0;  // seconds since 1970
  int64_t expires = 0;  // likewise; 0 = never
  bool operator==(const TokenRecord&) const = default;
};

/// Whether a text is a name as above.
bool IsTokenName(absl::string_view text);
inline constexpr char kTokenNameRule[] =
    "1 to 64 of A-Z a-z 0-9 . _ @ -, but not loopback and remote";

/// "2027-01-31T12:00:00Z", of years 1970 to 9999.
std::string TimeText(int64_t seconds);
/// The same back, and a date alone (its first second); nothing for other texts.
std::optional<int64_t> TimeOf(absl::string_view text);

}  // namespace octavo::security
