#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/base/mutex.h"
#include "server/security/certificate_table.h"
#include "server/security/token_store.h"

namespace octavo::security {

/// The principals that the configuration names for limits. One that nobody has is a slip of the
/// pen, or a token that is not issued yet: its limits bind nobody, and whoever they were meant for
/// has those of everybody. Thread-safe.
class NamedPrincipals {
 public:
  struct Name {
    std::string key, name;  // of the configuration: "quota.roots", "anna"
  };
  /// Who can call. The stores must outlive this object; null = none.
  struct Callers {
    const TokenStore* tokens = nullptr;
    const CertificateTable* certificates = nullptr;
    bool any_certificate = false;  // certificates without a line may call, too
  };
  NamedPrincipals(std::vector<Name> names, Callers callers)
      : names_(std::move(names)), callers_(callers) {}

  /// A line for each name that nobody has now.
  std::vector<std::string> Unknown() const;
  /// Why what is granted to a principal of this name helps nobody now, for people: nobody has the
  /// name, or whoever has it may change nothing at all. Empty = it may help.
  std::string WhyNoHelp(const std::string& grantee) const;
  /// Logs these lines: the first time, and when tokens or certificates were read again since. Call
  /// it after TokenStore::Look and CertificateTable::Look.
  void Look();

 private:
  /// Those with a token or a line of a certificate, and callers by TCP without a proof.
  std::set<std::string> Known() const;
  /// Whether someone may have a name that is not among the known ones.
  bool MayBeKnown(const std::string& name) const;

  const std::vector<Name> names_;
  const Callers callers_;
  Mutex mutex_;
  std::optional<int64_t> seen_ ABSL_GUARDED_BY(mutex_);  // reloads, of both
};

}  // namespace octavo::security
