#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo::security {

/// The files of TLS, as the configuration names them.
struct TlsFiles {
  std::string certificate;  // the server's, then those that issued it; PEM
  std::string key;          // of the first of them
  std::string client_ca;    // that issues certificates of clients; empty = clients have none
};

/// What the files hold.
struct TlsTexts {
  std::string certificate, key, client_ca;
  bool operator==(const TlsTexts&) const = default;
};

/// Texts that belong together: the server shows these certificates, and believes clients whose
/// certificate these authorities have issued.
struct TlsSet {
  TlsTexts texts;
  std::vector<std::string> client_cas;  // fingerprints of the authorities, sorted
  std::vector<std::string> names;       // of the server, as NamesOf
  int64_t not_after = 0;                // seconds since 1970: when the first of the chain expires
};

/// Reads the files. Errors name the key of the configuration and the file: the certificates must
/// not be writable, and the key not be readable, for others (secret_file.h).
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files);

/// Checks that the texts are a set that can serve at this time: everything can be read, the key
/// fits the first certificate, each certificate was issued by the next one, none has expired or is
/// to begin later, TLS takes them (a key that is too short, say), the first one is for servers, and
/// what issues clients' certificates are authorities, one of which at least is valid.
/// InvalidArgument names the key of the configuration and the file.
absl::StatusOr<TlsSet> CheckTlsTexts(const TlsFiles& files, TlsTexts texts, int64_t now);

}  // namespace octavo::security
