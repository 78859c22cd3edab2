#include "server/rpc/transport/principal_resolver.h"

#include <iterator>
#include <optional>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/status.h"
#include "server/rpc/transport/local_peer.h"
#include "server/rpc/transport/unix_peer.h"
#include "server/security/token.h"

namespace octavo::rpc {
namespace {

using security::Principal, security::Proof, security::Role;

absl::Status BadToken(absl::string_view what) {
  return WithInfo(absl::UnauthenticatedError(what),
                  {.reason = Reason::kBadToken, .field = "", .numbers = {}});
}

// Of a caller by TCP who shows neither a token nor a certificate.
Principal Unproved(const char* name, Role role, const char* found) {
  return {.name = name,
          .role = role,
          .project = "",
          .proof = Proof::kNone,
          .token_id = "",
          .found = found};
}

Principal OfSocket(const UnixPeer& peer, Role loopback_role) {
  Principal principal{.name = absl::StrCat("uid:", peer.uid),
                      .role = loopback_role,
                      .project = "",
                      .proof = Proof::kSocketUser,
                      .token_id = "",
                      .found = absl::StrCat("the Unix socket: user ", peer.uid)};
  if (peer.uid == 0) {
    principal.role = Role::kAdmin;
    absl::StrAppend(&principal.found, ", who is root");
  } else if (peer.uid == ::geteuid()) {
    principal.role = Role::kAdmin;
    absl::StrAppend(&principal.found, ", as whom octavod runs");
  } else if (peer.of_group) {
    principal.role = Role::kOperator;
    absl::StrAppend(&principal.found, ", of the socket's group");
  } else {
    absl::StrAppend(&principal.found,
                    ", not of the socket's group, so that listen.loopback_role holds");
  }
  return principal;
}

}  // namespace

absl::StatusOr<Principal> PrincipalResolver::OfCertificate(
    const security::ClientCertificate& certificate) const {
  if (certificate.not_after <= security::TokenStore::SystemSeconds())
    return WithInfo(
        absl::UnauthenticatedError(absl::StrCat("the certificate of the client expired at ",
                                                security::TimeText(certificate.not_after))),
        {.reason = Reason::kNoToken, .field = "", .numbers = {}});
  std::string name;
  security::CertificateLine line;
  if (config_.certificates != nullptr)
    std::tie(name, line) = config_.certificates->Find(certificate);
  if (!name.empty()) {
    std::string found = absl::StrCat("the client's certificate: ", name);
    return Principal{.name = line.name.empty() ? std::move(name) : std::move(line.name),
                     .role = line.role,
                     .project = std::move(line.project),
                     .proof = Proof::kCertificate,
                     .token_id = "",
                     .found = std::move(found)};
  }
  // The fingerprint comes first; a person knows the next one better.
  const auto& names = certificate.names;
  name = names.size() > 1 ? names[1] : names.empty() ? "certificate" : names[0];
  std::string found =
      absl::StrCat("the client's certificate: ", name, ", which has no line in ",
                   config_.certificates == nullptr ? "security.certificates (there is none)"
                                                   : config_.certificates->path(),
                   ", so that security.certificate_role holds");
  return Principal{.name = std::move(name),
                   .role = config_.certificate_role,
                   .project = "",
                   .proof = Proof::kCertificate,
                   .token_id = "",
                   .found = std::move(found)};
}

absl::StatusOr<Principal> PrincipalResolver::Resolve(
    const Metadata& metadata, const std::string& peer,
    const security::ClientCertificate* certificate) const {
  const auto [first, last] = metadata.equal_range("authorization");
  if (first != last) {
    if (std::next(first) != last)
      return BadToken("the call has several authorizations; allowed is one");
    absl::string_view text(first->second.data(), first->second.size());
    constexpr absl::string_view kScheme = "bearer ";
    if (!absl::StartsWithIgnoreCase(text, kScheme))
      return BadToken(
          "the authorization of the call is malformed; allowed is Bearer octavo_<id>_<secret>");
    text.remove_prefix(kScheme.size());
    if (config_.tokens == nullptr)
      return BadToken(
          "the bearer token is not known: this server takes no tokens (security.tokens of its "
          "configuration names none)");
    auto token = config_.tokens->Check(text);
    if (!token.ok()) return BadToken(token.status().message());
    std::string found = absl::StrCat("the token ", token->id, " of ", token->name);
    return Principal{.name = std::move(token->name),
                     .role = token->role,
                     .project = std::move(token->project),
                     .proof = Proof::kToken,
                     .token_id = std::move(token->id),
                     .found = std::move(found)};
  }
  if (const auto user = UnixPeerOf(peer); user.has_value())
    return OfSocket(*user, config_.loopback_role);
  if (certificate != nullptr) return OfCertificate(*certificate);
  if (LocalPeerOf(peer).local)
    return Unproved("loopback", config_.loopback_role,
                    "TCP on this host without a token (listen.loopback_role)");
  // Without TLS, another host reaches the server only if security.insecure allows it. Where there
  // are tokens, it needs one.
  if (config_.tls != nullptr)
    return Unproved("remote", Role::kNone,
                    "TCP from another host without a token and a certificate");
  if (config_.tokens != nullptr)
    return Unproved("remote", Role::kNone, "TCP from another host without a token");
  return Unproved("remote", config_.insecure_role,
                  "TCP from another host (security.insecure, security.insecure_role)");
}

}  // namespace octavo::rpc
