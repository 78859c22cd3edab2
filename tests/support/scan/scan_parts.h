#pragma once

// The surroundings of the parts of a scan, for tests of a single part.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "server/memory/ledger.h"
#include "server/publish/publisher.h"
#include "server/scan/scan_events.h"
#include "server/scan/scan_lifecycle.h"
#include "server/scan/scan_memory.h"
#include "server/scan/scan_observer.h"
#include "server/scan/scan_progress.h"
#include "server/volume/volume_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

/// The change of a spec to a CAPTURE scan with so many slots.
inline std::function<void(ScanSpec&)> Captures(int64_t hold_slots) {
  return [hold_slots](ScanSpec& spec) {
    spec.retention.mode = RetentionMode::kCapture;
    spec.retention.hold_slots = hold_slots;
  };
}

/// A scan of volumes of 4 B-scans of 6 A-scans, without flyback, until it is stopped.
inline ResolvedScan FewAscans(const std::function<void(ScanSpec&)>& change = nullptr) {
  return ResolvedKnown({.ascans_per_bscan = 6, .bscans_per_volume = 4}, change);
}

/// Remembers what a scan told.
class Told final : public ScanObserver {
 public:
  void OnScanChanged(const std::string&) override { ++changes; }
  void OnAcquisitionOver(const std::string&, const std::string&) override { ++overs; }
  void OnCommitWanted(const std::string& volume, const CommitOptions& options) override {
    commits.emplace_back(volume, options.destination);
  }
  int changes = 0, overs = 0;
  std::vector<std::pair<std::string, std::string>> commits;
};

/// A scan of single B-scans, and the objects that its parts report to.
struct ScanSurroundings {
  explicit ScanSurroundings(ResolvedScan of) : scan(std::move(of)) {}

  ResolvedScan scan;
  octavo::testing::FakeClock clock;
  Told told;
  Ledger ledger{std::vector<int64_t>(16, int64_t{1} << 30)};
  Publisher publisher{&clock};
  VolumeStore store{&ledger, &clock};
  ScanProgress progress{&clock};
  ScanEvents events{"scans/x", scan, &clock, &publisher, &told};
  ScanLifecycle life{"scans/x", &clock, &events, &told};

  /// The scan's devices, home first, charged as for a session.
  std::vector<ScanDevice> Charge(const std::vector<Device*>& devices) {
    std::vector<ScanDevice> charged;
    for (size_t d = 0; d < devices.size(); ++d) {
      auto charges =
          ledger.Reserve(static_cast<int>(d), "scans/x", "",
                         d == 0 ? Needs(scan, *devices[d]) : PeerNeeds(scan, *devices[d]), nullptr);
      EXPECT_THAT(charges.status(), octavo::testing::IsOk());
      charged.push_back(
          {.device = devices[d], .index = static_cast<int>(d), .charges = *std::move(charges)});
    }
    return charged;
  }
  std::vector<ScanEvent> Events() {
    ScanStatus status;
    events.AddTo(&status);
    return status.events;
  }
  ScanStatus Status() {
    ScanStatus status;
    life.AddTo(&status);
    progress.AddTo(&status);
    return status;
  }
};

}  // namespace octavo::engine::testing
