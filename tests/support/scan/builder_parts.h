#pragma once

// The parts of a scan that make its volumes, for tests of these parts and of those that follow.

#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "server/scan/device_lanes.h"
#include "server/scan/processing_updates.h"
#include "server/scan/retention_policy.h"
#include "server/scan/scan_memory.h"
#include "server/scan/volume_builder.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/scan_parts.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

/// Counts how often a volume should be moved, and moves none.
class CountingRelief final : public NoRelief {
 public:
  bool Spill(const std::string&, Tier) override {
    ++asked;
    return false;
  }
  int asked = 0;
};

/// A scan's memory, lanes, retention and builder, allocated as by a session. There are no threads:
/// a test does one step after the other.
class BuilderParts {
 public:
  explicit BuilderParts(ResolvedScan scan, bool source_waits = false,
                        Device& device = octavo::testing::SharedDevice("host"))
      : of(std::move(scan)),
        devices(of.Charge({&device})),
        memory(of.scan, &of.ledger, nullptr, devices),
        updates("scans/x", of.scan, &of.ledger, devices),
        lanes(of.scan, devices),
        retention(of.scan.spec.retention, VolumeSlots(of.scan),
                  {.scan = "scans/x",
                   .store = &of.store,
                   .relief = &relief,
                   .observer = &of.told,
                   .source_waits = source_waits,
                   .ring_occupancy = [] { return 0.0; },
                   .slots_return = [] { return false; }}),
        builder(&of.scan, &lanes,
                {.scan = "scans/x",
                 .server_id = "testtest",
                 .store = &of.store,
                 .memory = &memory,
                 .updates = &updates,
                 .retention = &retention,
                 .events = &of.events,
                 .progress = &of.progress,
                 .life = &of.life}) {
    using octavo::testing::IsOk;
    EXPECT_THAT(lanes.OpenStreams(), IsOk());
    EXPECT_THAT(memory.AllocateSlots(lanes.compute()), IsOk());
    EXPECT_THAT(lanes.Allocate(), IsOk());
    EXPECT_THAT(builder.Allocate(), IsOk());
    memory.Begin();
  }
  ~BuilderParts() {
    (void)lanes.Synchronize();
    memory.CloseSlots();
  }

  CountingRelief relief;
  ScanSurroundings of;
  const std::vector<ScanDevice> devices;
  ScanMemory memory;
  ProcessingUpdates updates;
  DeviceLanes lanes;
  RetentionPolicy retention;
  VolumeBuilder builder;
};

}  // namespace octavo::engine::testing
