#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/volume/volume_table.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/volume_callback.h"

namespace octavo::engine {

using octavo::testing::FakeClock;

/// A table with volumes, for the tests of one class that works on it.
class TableFixture : public ::testing::Test {
 protected:
  TableFixture() { table_.AddObserver(&observer_); }
  struct Volume {
    std::string scan = "scans/a";
    std::string session;
    double ttl_seconds = 0, ttl_warning_seconds = 0;
    bool of_ring = false;
  };
  std::shared_ptr<VolumeSlot> Slot() {
    auto slot = std::make_shared<VolumeSlot>();
    slot->charge =
        ledger_
            .Reserve(0, "scans/a", "",
                     {{.kind = model::NeedKind::kVolumeSlots, .bytes = 10, .count = 1}}, nullptr)
            .value()[0];
    return slot;
  }
  /// A held volume on the device. The weak pointer expires when its memory is freed.
  std::weak_ptr<VolumeSlot> Held(const std::string& name, const Volume& what) {
    VolumeStatus status;
    status.name = name;
    status.scan = what.scan;
    status.session = what.session;
    status.ttl_seconds = what.ttl_seconds;
    status.ttl_warning_seconds = what.ttl_warning_seconds;
    VolumeEntry entry = MakeEntry(status);
    const auto slot = Slot();
    entry.state = VolumeState::kHeld;
    entry.bytes.slot = slot;
    entry.of_ring = what.of_ring;
    entry.kept = !what.of_ring;
    entry.sealed_ns = entry.living_ns = table_.NowNs();
    MutexLock lock(table_.mutex());
    table_.Insert(std::move(entry));
    return slot;
  }
  VolumeStatus Get(const std::string& name) {
    MutexLock lock(table_.mutex());
    return table_.StatusOf(**table_.Find(name));
  }
  /// Changes the entry without the class under test.
  template <class Change>
  void With(const std::string& name, Change change) {
    MutexLock lock(table_.mutex());
    change(**table_.Find(name));
  }

  FakeClock clock_;
  Ledger ledger_{{1000}};
  std::vector<std::pair<std::string, VolumeState>> told_;
  octavo::testing::VolumeCallback observer_{
      [this](const VolumeStatus& v) { told_.emplace_back(v.name, v.state); }};
  VolumeTable table_{&ledger_, &clock_};
};

}  // namespace octavo::engine
