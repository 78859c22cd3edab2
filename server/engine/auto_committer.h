#pragma once

#include <string>

#include "absl/status/status.h"

#include "server/engine/scan_registry.h"
#include "server/volume/committer.h"

namespace octavo::engine {

/// Begins commits on the server's own initiative, as a scan's retention or an orphan policy
/// demands. A failed commit leaves the volume held, is logged, and becomes a warning of the scan.
class AutoCommitter {
 public:
  AutoCommitter(volume::Committer* committer, volume::VolumeStore* volumes, ScanRegistry* scans)
      : committer_(committer), volumes_(volumes), scans_(scans) {}
  /// Begins the commit. `asked`: if set, leases block it (VolumeStore::BeginCommit).
  absl::Status Begin(const std::string& volume, const model::CommitOptions& options,
                     const volume::ClientVerb* asked = nullptr);

 private:
  void Warn(const std::string& volume, const absl::Status& status);

  volume::Committer* const committer_;
  volume::VolumeStore* const volumes_;
  ScanRegistry* const scans_;
};

}  // namespace octavo::engine
