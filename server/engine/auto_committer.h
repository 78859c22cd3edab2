#pragma once

#include <string>

#include "absl/status/status.h"

#include "server/engine/scan_registry.h"
#include "server/volume/committer.h"

namespace octavo::engine {

/// Commits that the server begins by itself: what a scan's retention or an orphan policy wants.
/// A commit that fails leaves the volume held, is logged, and becomes a warning of the scan.
class AutoCommitter {
 public:
  AutoCommitter(volume::Committer* committer, volume::VolumeStore* volumes, ScanRegistry* scans)
      : committer_(committer), volumes_(volumes), scans_(scans) {}
  /// Whether the commit has begun. `asked`: leases stand in the way (VolumeStore::BeginCommit).
  absl::Status Begin(const std::string& volume, const model::CommitOptions& options,
                     const volume::ClientVerb* asked = nullptr);

 private:
  void Warn(const std::string& volume, const absl::Status& status);

  volume::Committer* const committer_;
  volume::VolumeStore* const volumes_;
  ScanRegistry* const scans_;
};

}  // namespace octavo::engine
