#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/security/granted_objects.h"
#include "server/security/role.h"

namespace octavo::security {

/// How a principal was found.
enum class Proof : uint8_t {
  kNone = 0,    // not at all: TCP without a token or a certificate
  kSocketUser,  // the kernel told the user at the other end of the Unix socket
  kToken,       // a bearer token
  kCertificate  // the certificate of a client, by TLS
};

/// Who calls. A plain value: it goes with requests and into records (WithoutGrants).
struct Principal {
  // of the token; "uid:1000" of a user; of the certificate ("cn:anna", or as its table says);
  // "loopback", "remote" without a proof
  std::string name;
  Role role = Role::kNone;
  std::string
      project;  // group of people who share objects; of a token or a certificate; may be empty
  Proof proof = Proof::kNone;
  std::string token_id;  // of kToken
  std::string found;     // how name and role were found, in words that follow "found by"
  /// What others had granted to it when its call was let in; null = nothing. It holds for this call
  /// alone.
  std::shared_ptr<const GrantedObjects> granted = nullptr;
};

/// The principal as records keep it: who it is lasts, what it was granted does not.
inline Principal WithoutGrants(Principal principal) {
  principal.granted = nullptr;
  return principal;
}

}  // namespace octavo::security
