#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/security/certificate.h"
#include "server/security/role.h"
#include "server/security/watched_file.h"

// The table of certificates: who the holder of a client's certificate is here. TOML:
//   [certificates]
//   "cn:anna" = { role = "operator", project = "retina" }
//   "uri:spiffe://lab.example/microscope-2" = { role = "viewer", name = "microscope-2" }
//   "sha256:<64 hex digits>" = { role = "none" }
namespace octavo::security {

inline constexpr size_t kMostCertificateLines = 10'000;

struct CertificateLine {
  Role role = Role::kNone;  // none: the holder may do nothing
  std::string name;         // of the principal; as a token's name; empty = the name of the line
  std::string project;      // likewise; may be empty
  bool operator==(const CertificateLine&) const = default;
};
/// By the name in the certificate, with its kind (NamesOf).
using CertificateLines = std::map<std::string, CertificateLine, std::less<>>;

/// Reads the text of such a file. FailedPrecondition names the line, or the name, and what is
/// allowed; nothing of a damaged file is used.
absl::StatusOr<CertificateLines> ParseCertificateLines(absl::string_view text);

/// The table, from a file that may change. It decides rights, so it must be as private as a file of
/// tokens (ReadSecretFile). Thread-safe.
class CertificateTable {
 public:
  static absl::StatusOr<std::unique_ptr<CertificateTable>> Open(const std::string& path);

  /// The line that a certificate has, with the name that it was found by: that of the first of its
  /// names (NamesOf) with a line, so that a line of the fingerprint goes before all others. Empty
  /// if it has none.
  std::pair<std::string, CertificateLine> Find(const ClientCertificate& certificate) const;

  /// The principals that lines make of certificates.
  std::set<std::string> Names() const;
  /// The highest role of the lines whose holders have this name in this project; none if there are
  /// none.
  Role RoleOf(const std::string& name, const std::string& project) const;

  /// Likewise, in whichever project.
  Role RoleOf(const std::string& name) const;

  /// As WatchedFile::Look.
  void Look() { file_.Look(); }
  /// As WatchedFile::Refused.
  std::string Refused() const { return file_.Refused(); }

  using Counts = WatchedFile<CertificateLines>::Counts;
  Counts Count() const { return file_.Count(); }
  const std::string& path() const { return file_.path(); }

 private:
  explicit CertificateTable(std::string path);

  WatchedFile<CertificateLines> file_;
};

}  // namespace octavo::security
