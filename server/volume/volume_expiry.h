#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/model/status_types.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// What time and the ends of clients do to volumes. Thread-safe.
class VolumeExpiry {
 public:
  explicit VolumeExpiry(VolumeTable& table) : table_(table) {}

  struct Due {
    std::vector<model::VolumeStatus> warned;   // will expire within their warning time; told once
    std::vector<model::VolumeStatus> expired;  // discarded
    std::vector<model::VolumeStatus>
        orphans;  // held volumes of sessions that are gone, without leases; told once
  };
  /// `gone`: whether a session has expired.
  Due Tick(const std::function<bool(const std::string& session)>& gone);
  /// An orphan could not be dealt with now: the next Tick tells it again.
  void TellOrphanAgain(const std::string& name);
  /// The session is alive again.
  void Adopt(const std::string& session);

 private:
  VolumeTable& table_;
};

}  // namespace octavo::volume
