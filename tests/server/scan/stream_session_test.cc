// The stream of blocks under disorder: random delays in every stage (source, upload, chain,
// products, subscriber), tiny rings, blocks of all sizes. Every volume equals that of an
// undisturbed run, bit for bit, and never shows the memory's earlier content (T2, T4 of the
// concurrency tests). Nothing is written beyond its end (T5), and no slot is reused while a reader
// uses it (T3).

#include <array>
#include <atomic>
#include <optional>

#include "tests/support/device/unruly_device.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using octavo::testing::UnrulyDevice;
using testing::ExpectSame;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;
using testing::RunOutcome;
using testing::SessionRun;

constexpr int64_t kMicrosecond = 1000;

class StreamSessionTest : public ::testing::TestWithParam<std::string> {
 protected:
  StreamSessionTest() : seed_(octavo::testing::FreshSeed()) {}

  static Pattern Raster(int64_t volumes) {
    return {.ascans_per_bscan = 24,
            .bscans_per_volume = 10,
            .volumes = volumes,
            .bidirectional = true,
            .flyback_records = 2};
  }
  std::unique_ptr<Source> Plain(const ResolvedScan& scan, int64_t volumes) {
    return std::make_unique<KnownSource>(records_, scan.volume_records * volumes, nullptr, nullptr);
  }
  /// Blocks of random sizes after random pauses.
  std::unique_ptr<Source> Restless(const ResolvedScan& scan, int64_t volumes, uint64_t seed) {
    auto random = std::make_shared<std::mt19937_64>(seed);
    return std::make_unique<KnownSource>(
        records_, scan.volume_records * volumes,
        [random] { return static_cast<int64_t>(1 + (*random)() % 60); },
        [random](int64_t) {
          std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 300));
        });
  }

  const uint64_t seed_;
  const KnownRecords records_{octavo::testing::FreshSeed(), 64};
};

TEST_P(StreamSessionTest, DelaysInEveryStageChangeNothing) {
  constexpr int64_t kVolumes = 6;
  for (const int round : {0, 1, 2}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed_, ", round ", round));
    const ResolvedScan scan = ResolvedKnown(Raster(kVolumes), [&](ScanSpec& spec) {
      spec.acquisition.ring_blocks = 3;
      spec.acquisition.records_per_block = std::array{5, 40, 300}[static_cast<size_t>(round)];
      spec.products.preview_rate_hz = 1000;
    });
    const RunOutcome calm =
        SessionRun::Run({&SharedDevice(GetParam())}, scan, Plain(scan, kVolumes));
    ASSERT_EQ(calm.voxels.size(), static_cast<size_t>(kVolumes));
    UnrulyDevice device(SharedDevice(GetParam()), {.seed = seed_ + static_cast<uint64_t>(round),
                                                   .longest_delay_ns = 400 * kMicrosecond});
    {
      SessionRun run({&device});
      auto subscription = run.publisher().Subscribe({.products = {Product::kMip, Product::kBscan},
                                                     .delivery = Delivery::kLossless,
                                                     .queue_length = 1024,
                                                     .previews = false},
                                                    [] {});
      ASSERT_THAT(subscription.status(), IsOk());
      ASSERT_THAT(run.Start(scan, Restless(scan, kVolumes, seed_)), IsOk());
      // A slow subscriber; its frames must equal the volume.
      std::atomic<bool> over{false};
      int64_t frames = 0;
      std::thread subscriber([&] {
        std::mt19937_64 random(seed_ + 99);
        for (Delivered next;;) {
          const bool last = over;
          if (!(*subscription)->Take(&next)) {
            if (last) return;
            std::this_thread::yield();
            continue;
          }
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
          const Frame& frame = *next.frame;
          const auto volume = static_cast<size_t>(frame.volume_index);
          const auto* bytes = static_cast<const uint8_t*>(frame.payload.data);
          const std::vector<uint8_t> got(bytes, bytes + frame.payload.size);
          if (frame.product == Product::kMip) {
            EXPECT_TRUE(got == calm.mips[volume]) << "MIP frame of volume " << volume;
          } else {
            const std::ptrdiff_t plane = static_cast<std::ptrdiff_t>(got.size()),
                                 middle = scan.shape[0] / 2 * plane;
            EXPECT_TRUE(std::equal(got.begin(), got.end(), calm.voxels[volume].begin() + middle))
                << "B-scan frame of volume " << volume;
          }
          ++frames;
        }
      });
      const RunOutcome unruly = run.Outcome();
      over = true;
      subscriber.join();
      EXPECT_EQ(frames, 2 * kVolumes);
      EXPECT_EQ(unruly.scan.state, ScanState::kDone) << unruly.scan.reason;
      ExpectSame(unruly, calm);
      EXPECT_GT(device.delays(), 20) << "the stages were held up indeed";
    }
    EXPECT_EQ(device.guards_broken(), 0) << "written beyond the end of a buffer";
  }
}

// T2 and T4: all memory is full of 0xA5 when it is allocated, and each upload is delayed. No result
// contains 0xA5.
TEST_P(StreamSessionTest, ALateUploadIsWaitedFor) {
  const ResolvedScan scan = ResolvedKnown(Raster(2), [](ScanSpec& spec) {
    spec.processing.value = ValueKind::kMagnitude;
    spec.processing.dtype = DType::kF32;
    spec.processing.dtype_given = true;
  });
  const RunOutcome calm = SessionRun::Run({&SharedDevice(GetParam())}, scan, Plain(scan, 2));
  UnrulyDevice device(
      SharedDevice(GetParam()),
      {.seed = seed_, .longest_delay_ns = 0, .upload_delay_ns = 20000 * kMicrosecond});
  const RunOutcome late = SessionRun::Run({&device}, scan, Plain(scan, 2));
  ExpectSame(late, calm);
  EXPECT_EQ(device.guards_broken(), 0);
}

// T3: a reader that has pinned a volume still sees its bytes while the ring of a LIVE scan advances
// over all other slots.
TEST_P(StreamSessionTest, APinnedVolumeIsNotGivenAway) {
  constexpr int64_t kVolumes = 40;
  Device& device = SharedDevice(GetParam());
  const ResolvedScan scan = ResolvedKnown(Raster(kVolumes), [](ScanSpec& spec) {
    spec.retention.mode = RetentionMode::kLive;
    spec.retention.hold_slots = 1;
  });
  const ResolvedScan capture = ResolvedKnown(Raster(kVolumes));
  const RunOutcome all = SessionRun::Run({&device}, capture, Plain(capture, kVolumes));
  SessionRun run({&device});
  ASSERT_THAT(run.Start(scan, Restless(scan, kVolumes, seed_)), IsOk());
  std::optional<VolumeHold> pinned;
  while (!pinned.has_value()) {
    for (const VolumeStatus& volume : run.store().List()) {
      auto pin = run.store().Hold(volume.name, HoldKind::kDevice);
      if (pin.ok()) pinned = *std::move(pin);
    }
  }
  // The read is delayed until the scan has ended: meanwhile the slot must not have been filled
  // again.
  ASSERT_OK_AND_ASSIGN(Stream reader, device.NewStream(StreamPriority::kLow));
  run.WaitForTheEnd();
  std::vector<uint8_t> got(static_cast<size_t>(pinned->status.bytes));
  ASSERT_THAT(device.CopyToHost(reader.ref(), got.data(), pinned->slot->volume.data(),
                                pinned->status.bytes),
              IsOk());
  ASSERT_THAT(reader.ref().Synchronize(), IsOk());
  EXPECT_TRUE(got == all.voxels[static_cast<size_t>(pinned->status.index)]);
}

TEST_P(StreamSessionTest, SmallBlocksMakeTheSameVolumesAsLargeOnes) {
  for (const BackgroundMode background : {BackgroundMode::kNone, BackgroundMode::kRolling}) {
    const auto change = [&](int64_t block) {
      return [=](ScanSpec& spec) {
        spec.acquisition.records_per_block = block;
        spec.processing.background = background;
        spec.processing.background_window_records = background == BackgroundMode::kRolling ? 50 : 0;
      };
    };
    const ResolvedScan small = ResolvedKnown(Raster(3), change(4));
    EXPECT_GT(small.chain.max_records_per_block, 4) << "blocks of 512 bytes are gathered";
    EXPECT_LE(small.chain.max_records_per_block, small.volume_records);
    const RunOutcome gathered =
        SessionRun::Run({&SharedDevice(GetParam())}, small, Plain(small, 3));
    // Each block passes the device before the next one arrives, so none is gathered.
    UnrulyDevice slow(SharedDevice(GetParam()),
                      {.seed = seed_, .longest_delay_ns = 100 * kMicrosecond});
    const RunOutcome held_up = SessionRun::Run({&slow}, small, Plain(small, 3));
    ASSERT_EQ(gathered.voxels.size(), 3u);
    ExpectSame(held_up, gathered);
    const ResolvedScan large = ResolvedKnown(Raster(3), change(200));
    ExpectSame(gathered, SessionRun::Run({&SharedDevice(GetParam())}, large, Plain(large, 3)));
  }
}

// A rolling background depends on record numbers only: neither the length of the source's blocks
// nor the number of blocks gathered into one upload affects it.
TEST_P(StreamSessionTest, IrregularBlocksAndARollingBackgroundDoNotDependOnTime) {
  const ResolvedScan scan = ResolvedKnown(Raster(3), [](ScanSpec& spec) {
    spec.acquisition.records_per_block = 40;
    spec.processing.background = BackgroundMode::kRolling;
    spec.processing.background_group_records = 17;
    spec.processing.background_window_records = 50;
  });
  const auto irregular = [&] {
    return std::make_unique<KnownSource>(
        records_, scan.volume_records * 3,
        [at = int64_t{0}]() mutable { return 1 + at++ / 4 * 7 % 13; }, nullptr);
  };
  UnrulyDevice slow(SharedDevice(GetParam()),
                    {.seed = seed_, .longest_delay_ns = 200 * kMicrosecond});
  const RunOutcome gathered = SessionRun::Run({&slow}, scan, irregular());
  ASSERT_EQ(gathered.voxels.size(), 3u);
  // A slow source: each block passes the device before the next one arrives.
  auto unhurried = std::make_unique<KnownSource>(
      records_, scan.volume_records * 3,
      [at = int64_t{0}]() mutable { return 1 + at++ / 4 * 7 % 13; },
      [](int64_t) { std::this_thread::sleep_for(std::chrono::microseconds(300)); });
  ExpectSame(SessionRun::Run({&SharedDevice(GetParam())}, scan, std::move(unhurried)), gathered);
  std::mt19937 random(seed_);
  for (int i = 0; i < 5; ++i) {
    ExpectSame(
        SessionRun::Run({&SharedDevice(GetParam())}, scan,
                        std::make_unique<KnownSource>(
                            records_, scan.volume_records * 3,
                            [&] { return 1 + static_cast<int64_t>(random() % 40); }, nullptr)),
        gathered);
  }
}

// Without a slot for raw records, the raw volume is left out; a slot of another size does not
// count.
TEST_P(StreamSessionTest, RawRecordsNeverLieInTheSlotOfAVolume) {
  const ResolvedScan scan = ResolvedKnown(Raster(4), [](ScanSpec& spec) {
    spec.retention.hold_raw = true;
    spec.retention.hold_slots = 3;
    spec.retention.on_full = OnFull::kSpillHost;  // and no tier that accepts a volume
    spec.retention.on_tier_full = OnFull::kDropNew;
  });
  UnrulyDevice device(SharedDevice(GetParam()), {});
  {
    SessionRun run({&device});
    bool discarded = false;
    auto source = std::make_unique<KnownSource>(
        records_, scan.volume_records * 4, nullptr, [&](int64_t next) {
          if (discarded || next < 3 * scan.volume_records) return;
          discarded = true;
          // Then two slots for volumes are free, and none for raw records.
          int left = 2;
          while (left > 0) {
            std::this_thread::yield();
            for (const VolumeStatus& volume : run.store().List()) {
              if (left > 0 && !volume.is_raw && volume.state == VolumeState::kHeld &&
                  run.store().Discard(volume.name, Reason::kDiscarded, "test").ok())
                --left;
            }
          }
        });
    ASSERT_THAT(run.Start(scan, std::move(source)), IsOk());
    const ScanStatus status = run.WaitForTheEnd();
    EXPECT_EQ(status.state, ScanState::kDone) << status.reason;
    EXPECT_EQ(status.volumes_done, 3);
    EXPECT_EQ(status.volumes_dropped, 1);
    for (const VolumeStatus& volume : run.store().List()) EXPECT_LT(volume.index, 3) << volume.name;
  }
  EXPECT_EQ(device.guards_broken(), 0);
}

// Any error between a volume's first record and its seal ends the volume as FAILED, and its memory
// is freed.
TEST_P(StreamSessionTest, AVolumeThatCannotBeFinishedIsFailed) {
  const ResolvedScan scan = ResolvedKnown(Raster(6));
  for (const bool at_begin : {true, false}) {
    // In the second volume: its projections and counts are the fourth to sixth fills.
    UnrulyDevice device(SharedDevice(GetParam()),
                        at_begin ? octavo::testing::UnrulyOptions{.failing_fill = 3}
                                 : octavo::testing::UnrulyOptions{.failing_digest = 1});
    SessionRun run({&device});
    ASSERT_THAT(run.Start(scan, Plain(scan, 6)), IsOk());
    const ScanStatus status = run.WaitForTheEnd();
    EXPECT_EQ(status.state, ScanState::kFailed);
    EXPECT_EQ(status.reason_code, Reason::kDeviceError);
    const std::vector<VolumeStatus> volumes = run.store().List();
    ASSERT_EQ(volumes.size(), 2u);
    EXPECT_EQ(volumes[0].state, VolumeState::kHeld);
    EXPECT_EQ(volumes[1].state, VolumeState::kFailed);
    EXPECT_NE(volumes[1].reason.find("says the test"), std::string::npos) << volumes[1].reason;
    ASSERT_THAT(run.store().Discard(volumes[0].name, Reason::kDiscarded, "test").status(), IsOk());
    EXPECT_EQ(run.ledger().UseOf(0).granted(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, StreamSessionTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
