#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/base/callback_handle.h"
#include "server/derive/deriver.h"
#include "server/model/status_types.h"
#include "server/volume/commit_callbacks.h"
#include "server/volume/volume_reader.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

struct Components;

/// Volumes in every state, and clients' operations on held ones: the engine's part for
/// VolumeService. `lease_token`: the token of the caller's own lease of the volume. Leases of
/// others block the call (LEASED); the table at the head of volume_store.h lists the blocked calls.
class Volumes {
 public:
  using Done = std::function<void(absl::StatusOr<model::VolumeStatus>)>;
  explicit Volumes(Components* components) : components_(*components) {}

  absl::StatusOr<model::VolumeStatus> Get(const std::string& name);
  /// Oldest first. Volumes that have left memory stay listed for ten minutes.
  std::vector<model::VolumeStatus> List(const volume::VolumeQuery& query = {});
  absl::StatusOr<std::shared_ptr<volume::VolumeReader>> Read(const std::string& name,
                                                             const std::vector<int64_t>& start,
                                                             const std::vector<int64_t>& count);
  /// Marks a volume, or with `release` removes the mark.
  absl::StatusOr<model::VolumeStatus> Hold(const std::string& name, bool release,
                                           const std::string& lease_token = "");
  /// Moves a held volume's bytes out of device memory, or back. `done` is called once, at once or
  /// from an engine thread.
  void Spill(const std::string& name, model::Tier tier, Done done,
             const std::string& lease_token = "");
  void Restore(const std::string& name, Done done);
  /// `detach_exports`: discards the volume even if other processes map it. If the call is refused
  /// (LEASED, VOLUME_STATE), the exports do not change. Of a volume that is DISCARDED the answer is
  /// its status.
  absl::StatusOr<model::VolumeStatus> Discard(const std::string& name, bool detach_exports = false,
                                              const std::string& lease_token = "");
  /// Makes a new held volume from a held one; `done` is called once, from an engine thread. Errors
  /// known at once are returned instead.
  absl::Status Derive(const derive::DeriveSpec& spec, Done done);
  /// `done` is called once, from an engine thread, as soon as the volume is not being acquired:
  /// with the volume, or DataLoss (VOLUME_FAILED). `over` (may be null; must not block) says that
  /// the waiter has gone; `done` need not be called then.
  absl::Status Wait(const std::string& name, Done done, std::function<bool()> over = nullptr);
  /// Starts a commit, or (same request_id) joins or answers the earlier one. Errors known at once
  /// are returned; later ones go to on_done. Destroying the handle does not cancel; Cancel does.
  absl::StatusOr<std::shared_ptr<base::Handle>> Commit(const std::string& name,
                                                       const model::CommitOptions& options,
                                                       const std::string& request_id,
                                                       volume::CommitCallbacks callbacks,
                                                       const std::string& lease_token = "");
  /// Whether a commit with these options would be refused because of its destination; needs no
  /// volume.
  absl::Status CheckCommit(const model::CommitOptions& options);

 private:
  model::VolumeStatus WithLeases(model::VolumeStatus volume);
  absl::Status CheckDevice(const std::string& name, const char* where, int device);

  Components& components_;
};

}  // namespace octavo::engine
