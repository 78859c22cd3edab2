#pragma once

#include <cstdint>
#include <memory>
#include <openssl/x509.h>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::security {

struct FreeX509 {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using Certificate = std::unique_ptr<X509, FreeX509>;

/// The certificates of a PEM text, in its order. InvalidArgument if it has none, or one that cannot
/// be read.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(absl::string_view pem);

/// SHA-256 of a certificate, 64 hex digits, as `openssl x509 -fingerprint -sha256` shows it without
/// colons and in small letters.
std::string FingerprintOf(const X509& certificate);

/// The names that a certificate says its holder has, each with its kind, in this order:
/// "sha256:<fingerprint>", "uri:…", "email:…", "dns:…" (subjectAltName), "cn:…" (of the subject).
/// Names with control characters, or of more than 256 bytes, are left out: no line of a table means
/// them.
std::vector<std::string> NamesOf(const X509& certificate);

/// Seconds since 1970 before which, and after which, it is not valid.
int64_t NotBefore(const X509& certificate);
int64_t NotAfter(const X509& certificate);

/// What the server needs to know of a client's certificate.
struct ClientCertificate {
  std::vector<std::string> names;  // as NamesOf
  int64_t not_after = 0;
};
absl::StatusOr<ClientCertificate> ReadClientCertificate(absl::string_view pem);

}  // namespace octavo::security
