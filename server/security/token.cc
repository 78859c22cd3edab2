#include "server/security/token.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <sys/random.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "server/base/sha256.h"

namespace octavo::security {
namespace {

constexpr char kPrefix[] = "octavo_";
constexpr size_t kPrefixSize = sizeof kPrefix - 1, kIdSize = 8, kSecretSize = 64;

std::string RandomHex(size_t digits) {
  std::string bytes(digits / 2, '\0');
  for (size_t got = 0; got < bytes.size();) {
    const ssize_t n = ::getrandom(bytes.data() + got, bytes.size() - got, 0);
    if (n > 0) got += static_cast<size_t>(n);
  }
  return absl::BytesToHexString(bytes);
}

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string MakeToken() {
  return absl::StrCat(kPrefix, RandomHex(kIdSize), "_", RandomHex(kSecretSize));
}

std::optional<std::string> IdOfToken(absl::string_view text) {
  if (text.size() != kPrefixSize + kIdSize + 1 + kSecretSize || !absl::StartsWith(text, kPrefix) ||
      text[kPrefixSize + kIdSize] != '_')
    return std::nullopt;
  const absl::string_view id = text.substr(kPrefixSize, kIdSize);
  if (!IsHex(id) || !IsHex(text.substr(kPrefixSize + kIdSize + 1))) return std::nullopt;
  return std::string(id);
}

std::string HashOfToken(absl::string_view text) { return base::Sha256(text); }

bool IsTokenName(absl::string_view text) {
  // Callers without an identity have these.
  if (text == "loopback" || text == "remote") return false;
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '@' ||
           c == '-';
  });
}

std::string TimeText(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
}

std::optional<int64_t> TimeOf(absl::string_view text) {
  const std::string full = text.size() == 10 ? absl::StrCat(text, "T00:00:00Z") : std::string(text);
  std::tm parts{};
  if (full.size() != 20) return std::nullopt;
  const char* const end = ::strptime(full.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const int64_t seconds = ::timegm(&parts);
  // Days that a month does not have would become others.
  if (seconds < 0 || TimeText(seconds) != full) return std::nullopt;
  return seconds;
}

}  // namespace octavo::security
