#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "server/engine/scan_registry.h"
#include "server/volume/committer.h"

namespace octavo::engine {

/// Begins commits on the server's own initiative, as a scan's retention or an orphan policy
/// demands. A failed commit leaves the volume held, is logged, and becomes a warning of the scan.
class AutoCommitter {
 public:
  /// Whether a principal may have something committed to a destination (Components::CheckRoot).
  using CheckRoot =
      std::function<absl::Status(const security::Owner&, const std::string& destination)>;
  AutoCommitter(volume::Committer* committer, volume::VolumeStore* volumes, ScanRegistry* scans,
                CheckRoot check_root)
      : committer_(committer),
        volumes_(volumes),
        scans_(scans),
        check_root_(std::move(check_root)) {}
  /// Begins the commit. `asked`: if set, leases block it (VolumeStore::BeginCommit).
  absl::Status Begin(const std::string& volume, const model::CommitOptions& options,
                     const volume::ClientVerb* asked = nullptr);

 private:
  /// Where the volume would really go: template fields are filled in only now, and the roots that
  /// its owner may not name must not be reached by them.
  absl::Status CheckDestination(const std::string& volume, const model::CommitOptions& options);
  void Warn(const std::string& volume, const absl::Status& status);

  volume::Committer* const committer_;
  volume::VolumeStore* const volumes_;
  ScanRegistry* const scans_;
  const CheckRoot check_root_;
};

}  // namespace octavo::engine
