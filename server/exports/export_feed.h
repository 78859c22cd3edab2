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

/// The scan lookups that the feeds need.
class ScanLookup {
 public:
  virtual ~ScanLookup() = default;
  /// Whether the scan has ended. NotFound (NO_SCAN).
  virtual absl::StatusOr<bool> HasEnded(const std::string& scan) = 0;
  /// How many slots of the volume's scan may be mapped at the same time.
  virtual int64_t SpareSlots(const model::VolumeStatus& volume) = 0;
};

/// Standing subscriptions to the volumes of a scan. As each volume completes, the server makes and
/// counts its export and sends it to the client, which need not ask. Where both processes sleep,
/// that saves one of two wake-ups.
///
/// A client has at most `most` volumes at once. Others that complete meanwhile are left out and
/// counted. With "every", the feed sends them, oldest first, as the client returns volumes (those
/// that have left memory by then are left out), and it sends the volumes that are held at the start
/// first. The scan waits for no client, and no client's mappings can end it: a volume of a LIVE
/// ring takes a hold slot while it is mapped, and of scans that free their slots by themselves
/// (AUTO_COMMIT, AUTO_DISCARD, SPILL_…) all clients together get all slots but two. Raw and derived
/// volumes are not sent. Thread-safe.
class ExportFeeds final : public volume::VolumeObserver {
 public:
  static constexpr int64_t kMost = 64;          // volumes that one client may have at the same time
  static constexpr size_t kMostWaiting = 4096;  // volumes queued for one client
  struct Context {
    ExportStore* exports = nullptr;
    volume::VolumeStore* volumes = nullptr;
    ScanLookup* scans = nullptr;
    const Clock* clock = nullptr;
  };
  explicit ExportFeeds(Context context);
  ~ExportFeeds();

  /// Issues a ticket for the volumes of a scan. The errors of ExportStore::Admit; NotFound
  /// (NO_SCAN), ResourceExhausted (TICKETS).
  absl::StatusOr<handoff::Ticket> Issue(const std::string& scan, const ExportPeer& peer);
  /// Sends a volume that is now held on the device to the subscribed clients; waits for none of
  /// them.
  void OnVolumeChanged(const model::VolumeStatus& volume) override;
  /// Notifies clients of scans that have ended. Call periodically.
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
