#pragma once

#include <cstdint>
#include <string>

#include "server/security/role.h"

namespace octavo::security {

/// How a principal was found.
enum class Proof : uint8_t {
  kNone = 0,    // not at all: TCP without a token or a certificate
  kSocketUser,  // the kernel told the user at the other end of the Unix socket
  kToken,       // a bearer token
  kCertificate  // the certificate of a client, by TLS
};

/// Who calls. A plain value: it goes with requests and into records.
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
};

}  // namespace octavo::security
