#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/model/status_types.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// Expires volumes by time and finds the volumes of clients that are gone. Thread-safe.
class VolumeExpiry {
 public:
  explicit VolumeExpiry(VolumeTable& table) : table_(table) {}

  struct Due {
    std::vector<model::VolumeStatus> warned;   // near their expiry; reported once
    std::vector<model::VolumeStatus> expired;  // discarded
    std::vector<model::VolumeStatus> orphans;  // held, without leases, session gone; reported once
  };
  /// Checks all volumes. `gone`: whether a session has expired.
  Due Tick(const std::function<bool(const std::string& session)>& gone);
  /// The caller could not handle this orphan now: the next Tick reports it again.
  void TellOrphanAgain(const std::string& name);
  /// The session is alive again: its volumes are no longer orphans.
  void Adopt(const std::string& session);

 private:
  VolumeTable& table_;
};

}  // namespace octavo::volume
