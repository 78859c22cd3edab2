#pragma once

#include "absl/status/status.h"

#include "server/engine/auto_committer.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// Handles a held volume whose client is gone as its scan's retention, or its job's spec, demands:
/// keep, spill, commit or discard.
class OrphanPolicy {
 public:
  OrphanPolicy(volume::VolumeStore* volumes, volume::Spiller* spiller, AutoCommitter* committer)
      : volumes_(volumes), spiller_(spiller), committer_(committer) {}
  void Apply(const model::VolumeStatus& volume);

 private:
  absl::Status Do(const model::VolumeStatus& volume, const model::Retention& retention);

  volume::VolumeStore* const volumes_;
  volume::Spiller* const spiller_;
  AutoCommitter* const committer_;
};

}  // namespace octavo::engine
