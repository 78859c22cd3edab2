#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"

#include "server/memory/ledger.h"

namespace octavo::volume {

/// Knows which volumes have memory that other processes map. The VolumeStore calls it under its own
/// lock, so that no mapping can begin between the store's check and its action. An implementation
/// must not call back into the store.
class VolumeMappings {
 public:
  virtual ~VolumeMappings() = default;
  /// The volumes whose present memory is mapped, or for which a ticket is outstanding.
  virtual std::set<std::string> Mapped() = 0;
  /// FailedPrecondition (EXPORTED, with count and users) if another process maps the volume.
  virtual absl::Status CheckFree(const std::string& volume) = 0;
  /// The volume has left the memory of `charge`, which the store releases as soon as this returns
  /// unless another process maps it. The store calls this one without locks.
  virtual void Left(const std::string& volume, memory::Ledger::ChargeId charge) = 0;
};

}  // namespace octavo::volume
