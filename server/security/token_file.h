#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/security/token.h"

// The file of tokens: lines of JSON. The first one is {"octavo_tokens":1}; each other one is a
// token: {"id":"0a1b2c3d","sha256":"<64 hex digits>","name":"anna","role":"operator",
// "project":"retina","created":"2026-11-27T10:00:00Z","expires":"2027-11-27T00:00:00Z"}. Project
// and expires may be missing. Every line ends with a line feed.
namespace octavo::security {

inline constexpr size_t kMostTokens = 10'000;

/// Reads the text of such a file. FailedPrecondition names the line and what is wrong with it;
/// nothing of a damaged file is used.
absl::StatusOr<std::vector<TokenRecord>> ParseTokens(absl::string_view text);
std::string FormatTokens(const std::vector<TokenRecord>& tokens);

/// Reads a file for a person to look at: root reads that of every user. Otherwise as ReadSecretFile
/// and ParseTokens; messages name the file.
absl::StatusOr<std::vector<TokenRecord>> ListTokens(const std::string& path);

/// Replaces the tokens of a file (ChangeSecretFile). `change` gets those that there are.
absl::Status ChangeTokens(const std::string& path, bool create,
                          const std::function<absl::Status(std::vector<TokenRecord>*)>& change);

}  // namespace octavo::security
