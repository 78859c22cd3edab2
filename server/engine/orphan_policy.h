#pragma once

#include "absl/status/status.h"

#include "server/engine/auto_committer.h"
#include "server/security/root_rights.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// Handles a held volume whose client is gone as its scan's retention, or its job's spec, demands:
/// keep, spill, commit or discard.
class OrphanPolicy {
 public:
  /// `root_rights`: which storage roots the owners of volumes may name.
  OrphanPolicy(volume::VolumeStore* volumes, volume::Spiller* spiller, AutoCommitter* committer,
               const security::RootRights* root_rights)
      : volumes_(volumes), spiller_(spiller), committer_(committer), root_rights_(root_rights) {}
  void Apply(const model::VolumeStatus& volume);

 private:
  absl::Status Do(const model::VolumeStatus& volume, const model::Retention& retention);

  volume::VolumeStore* const volumes_;
  volume::Spiller* const spiller_;
  AutoCommitter* const committer_;
  const security::RootRights* const root_rights_;
};

}  // namespace octavo::engine
