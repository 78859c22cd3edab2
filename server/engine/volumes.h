#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/derive/deriver.h"
#include "server/engine/rendering.h"
#include "server/model/render_spec.h"
#include "server/model/scan_spec.h"
#include "server/model/status_types.h"
#include "server/model/volume_read.h"
#include "server/operation/operation_table.h"
#include "server/security/principal.h"
#include "server/volume/volume_reader.h"
#include "server/volume/volume_store.h"
#include "server/volume/volume_watchers.h"

namespace octavo::engine {

struct Components;

/// Volumes in every state, and clients' operations on held ones: the engine's part for
/// VolumeService. `lease_token`: the token of the caller's own lease of the volume. Leases of
/// others block the call (LEASED); the table at the head of volume_store.h lists the blocked calls.
/// `caller`: who asks; PermissionDenied (NOT_OWNER) for one who may not change the volume.
///
/// Commit, Spill, Restore and Derive begin an operation, or find that of an earlier request
/// (operation_table.h), and return its name. Errors known before the work begins are returned
/// instead, and nothing has changed.
class Volumes {
 public:
  using Done = std::function<void(absl::StatusOr<model::VolumeStatus>)>;
  explicit Volumes(Components* components) : components_(*components) {}

  absl::StatusOr<model::VolumeStatus> Get(const std::string& name);
  /// Oldest first. Volumes that have left memory stay listed for ten minutes.
  std::vector<model::VolumeStatus> List(const volume::VolumeQuery& query = {});
  /// Raw spectra have no coarse picture: InvalidArgument ("downsample", "window").
  absl::StatusOr<std::shared_ptr<volume::VolumeReader>> Read(const model::VolumeRead& read);
  /// A plane or a projection of a held volume, in host memory. Takes milliseconds to many seconds.
  /// `unwanted` (may be null; must not block) says that nobody waits for it any more: Cancelled.
  /// `admit` sees the plan before memory is taken for it; its error is returned.
  absl::StatusOr<Rendered> Render(const model::RenderSpec& spec,
                                  const std::function<bool()>& unwanted,
                                  const std::function<absl::Status(const Rendered&)>& admit);
  /// Marks a volume.
  absl::StatusOr<model::VolumeStatus> Hold(const std::string& name,
                                           const security::Principal& caller = {});
  /// Removes the mark. `lease_token`: the caller's own lease, which does not block the call.
  absl::StatusOr<model::VolumeStatus> Release(const std::string& name,
                                              const std::string& lease_token = "",
                                              const security::Principal& caller = {});
  /// Moves a held volume's bytes out of device memory, or back.
  absl::StatusOr<std::string> Spill(const std::string& name, model::Tier tier,
                                    const operation::RequestKey& request = {},
                                    const std::string& lease_token = "",
                                    const security::Principal& caller = {});
  absl::StatusOr<std::string> Restore(const std::string& name,
                                      const operation::RequestKey& request = {},
                                      const security::Principal& caller = {});
  /// `detach_exports`: discards the volume even if other processes map it. If the call is refused
  /// (LEASED, VOLUME_STATE), the exports do not change. Of a volume that is DISCARDED the answer is
  /// its status.
  absl::StatusOr<model::VolumeStatus> Discard(const std::string& name, bool detach_exports = false,
                                              const std::string& lease_token = "",
                                              const security::Principal& caller = {});
  /// Makes a new held volume from a held one. `begun` is called once, at once or from an engine
  /// thread: with the name of the operation when the work is planned and has its memory (its
  /// `volumes` names the new one), or with what is wrong.
  void Derive(const derive::DeriveSpec& spec, const operation::RequestKey& request,
              std::function<void(absl::StatusOr<std::string>)> begun);
  /// Calls `told` for each volume in memory, then for each change, until the returned handle is
  /// destroyed (base/change_watchers.h).
  std::shared_ptr<void> Watch(volume::VolumeWatchers::Told told);
  /// `done` is called once, from an engine thread, as soon as the volume is not being acquired:
  /// with the volume, or DataLoss (VOLUME_FAILED). `over` (may be null; must not block) says that
  /// the waiter has gone; `done` need not be called then.
  absl::Status Wait(const std::string& name, Done done, std::function<bool()> over = nullptr);
  absl::StatusOr<std::string> Commit(const std::string& name, const model::CommitOptions& options,
                                     const operation::RequestKey& request = {},
                                     const std::string& lease_token = "",
                                     const security::Principal& caller = {});
  /// Whether a commit with these options would be refused because of its destination; needs no
  /// volume.
  absl::Status CheckCommit(const model::CommitOptions& options,
                           const security::Principal& caller = {});

 private:
  model::VolumeStatus WithLeases(model::VolumeStatus volume);
  /// A hold for reading, with all its devices in order.
  absl::StatusOr<volume::VolumeHold> HoldToRead(const std::string& name);
  absl::Status CheckDevice(const std::string& name, const char* where, int device);

  Components& components_;
};

}  // namespace octavo::engine
