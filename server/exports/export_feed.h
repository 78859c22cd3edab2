#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/exports/export_store.h"
#include "server/handoff/fd_socket.h"
#include "server/volume/volume_observer.h"
#include "server/volume/volume_store.h"

namespace octavo::exports {

/// What the feeds must know of scans.
class ScanLookup {
 public:
  virtual ~ScanLookup() = default;
  /// Whether the scan has ended. NotFound (NO_SCAN).
  virtual absl::StatusOr<bool> HasEnded(const std::string& scan) = 0;
  /// How many slots of the volume's scan may be mapped at once.
  virtual int64_t SpareSlots(const model::VolumeStatus& volume) = 0;
};

/// Standing subscriptions to the volumes of a scan. The server sends each volume to the client as
/// it completes, its export made and counted; the client does not ask. That is one wake-up instead
/// of two where both processes slept.
///
/// On the socket (see fd_socket.h) the grant answers
///   {"ticket": …, "have": ["<memory>", …], "most": 4, "every": false}  with  {"scan": "scans/…",
///       "most": 4}
/// and tells out of turn
///   {what ExportStore says of an export, "index": volume, "complete": …, "missing_ascans": …,
///       "spacing_um": […], "sealed_ns": …, "skipped": n}
///       with the descriptor, unless it was sent before or `have` named it. `skipped`: volumes left
///       out since the last one told. `sealed_ns`: when it was complete, by the host's monotonic
///       clock.
///   {"scan_ended": "scans/…", "skipped": n}: no more will come. What the client has, it may keep.
///   {"revoked": "exports/…", …} as ever
/// It takes {"release": "exports/…"}, and {"forget": ["<memory>", …]} of mappings that the client
/// has dropped.
///
/// A client has at most `most` volumes at once. Others that complete meanwhile are left out and
/// counted; with "every" they are told, oldest first, as volumes are given back (those that have
/// left memory by then are left out), and the volumes that are held at the start come first. The
/// scan waits for no client, and no client's mappings end it: a volume of a LIVE ring
/// takes a hold slot while it is mapped, and of scans that free their slots by themselves
/// (AUTO_COMMIT, AUTO_DISCARD, SPILL_…) all clients together get all slots but two. What is raw or
/// derived is not told. Thread-safe.
class ExportFeeds final : public volume::VolumeObserver {
 public:
  static constexpr int64_t kMost = 64;          // volumes that one client may have at once
  static constexpr size_t kMostWaiting = 4096;  // volumes to be told later, of one client
  struct Context {
    ExportStore* exports = nullptr;
    volume::VolumeStore* volumes = nullptr;
    ScanLookup* scans = nullptr;
    const Clock* clock = nullptr;
  };
  explicit ExportFeeds(Context context);
  ~ExportFeeds();

  /// A ticket for the volumes of a scan. The errors of ExportStore::Admit; NotFound (NO_SCAN),
  /// ResourceExhausted (TICKETS).
  absl::StatusOr<handoff::Ticket> Issue(const std::string& scan, const ExportPeer& peer);
  /// Sends a volume that is held on the device now to the subscribed clients; waits for none of
  /// them.
  void OnVolumeChanged(const model::VolumeStatus& volume) override;
  /// Tells of scans that have ended. From time to time.
  void Tick();

  struct Counts {
    int64_t feeds = 0;              // now
    int64_t told = 0, skipped = 0;  // since the start
  };
  Counts Count();

 private:
  class Feed;
  std::vector<std::shared_ptr<Feed>> Open(const std::string& scan = "");

  const Context context_;
  std::atomic<int64_t> open_{0}, told_{0}, skipped_{0};
  Mutex mutex_;
  std::vector<std::shared_ptr<Feed>> feeds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::exports
