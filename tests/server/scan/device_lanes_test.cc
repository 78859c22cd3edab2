#include "server/scan/device_lanes.h"

#include "tests/support/device/backend_param.h"
#include "tests/support/scan/scan_parts.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SeveralDevices;
using octavo::testing::SharedDevice;
using testing::KnownRecords;
using testing::ResolvedKnown;
using testing::ScanSurroundings;

constexpr int64_t kSamples = 64, kAscans = 20, kBscans = 12, kBlock = 48;
constexpr int64_t kRecords = kAscans * kBscans;

/// The lanes of one volume, without a session: the test passes records block by block.
class LanesRun {
 public:
  LanesRun(std::vector<Device*> devices, uint64_t seed)
      : of_(ResolvedKnown({.ascans_per_bscan = kAscans, .bscans_per_volume = kBscans, .volumes = 1},
                          [](ScanSpec& spec) { spec.acquisition.records_per_block = kBlock; })),
        lanes_(of_.scan, of_.Charge(devices)),
        host_(devices[0]->AllocatePinned(kRecords * kSamples * 2).value()),
        words_(devices[0]->AllocatePinned(1024).value()),
        records_(seed, kSamples) {
    of_.scan.chain.max_records_per_block = kBlock;
    for (int64_t r = 0; r < kRecords; ++r) records_.Write(r, host_.as<uint16_t>() + r * kSamples);
    EXPECT_THAT(lanes_.OpenStreams(), IsOk());
    EXPECT_THAT(lanes_.Allocate(), IsOk());
    EXPECT_THAT(AllocateSlot(of_.scan, lanes_.home(), &slot_), IsOk());
  }
  /// Enqueues records [first, end) of the volume.
  void Take(int64_t first, int64_t end) {
    for (int64_t at = first; at < end; at += kBlock) {
      const SourceBlock block{.first_record = at, .records = std::min(kBlock, end - at)};
      const size_t raw = static_cast<size_t>(blocks_++ % kRawBuffers);
      ASSERT_THAT(lanes_.Upload(raw, host_.as<uint8_t>() + at * kSamples * 2, block), IsOk());
      ASSERT_THAT(
          lanes_.Process(
              raw, block,
              {.volume = 0, .first_record = at, .records = block.records, .active = block.records},
              &slot_),
          IsOk());
      ASSERT_THAT(lanes_.EndBlock(raw), IsOk());
    }
  }
  /// Ends the volume without the A-scans `missing` and returns its digest.
  DeviceLanes::SealSum Seal(const std::vector<std::pair<int64_t, int64_t>>& missing) {
    EXPECT_THAT(lanes_.EndVolume(slot_, missing), IsOk());
    EXPECT_THAT(lanes_.EnqueueSeal(lanes_.compute(), slot_, words_.as<uint64_t>()), IsOk());
    EXPECT_THAT(lanes_.compute().Synchronize(), IsOk());
    EXPECT_THAT(lanes_.SentStatus(), IsOk());
    return lanes_.Sum(words_.as<uint64_t>());
  }
  std::vector<uint8_t> Voxels() {
    std::vector<uint8_t> voxels(static_cast<size_t>(of_.scan.volume_bytes));
    EXPECT_THAT(lanes_.home().CopyToHost(lanes_.compute(), voxels.data(), slot_.volume.data(),
                                         of_.scan.volume_bytes),
                IsOk());
    EXPECT_THAT(lanes_.compute().Synchronize(), IsOk());
    return voxels;
  }

  ScanSurroundings of_;
  DeviceLanes lanes_;
  VolumeSlot slot_;

 private:
  PinnedBuffer host_, words_;
  const KnownRecords records_;
  int64_t blocks_ = 0;
};

class DeviceLanesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceLanesTest, OneDeviceIsOneLane) {
  LanesRun run({&SharedDevice(GetParam())}, 1);
  EXPECT_EQ(run.lanes_.size(), 1u);
  EXPECT_TRUE(run.lanes_.SpreadNames().empty());
  EXPECT_TRUE(run.lanes_.Uses(0));
  EXPECT_FALSE(run.lanes_.Uses(1));
}

TEST_P(DeviceLanesTest, SeveralLanesMakeTheSameVolumeAsOne) {
  auto devices = SeveralDevices(GetParam());
  if (devices.empty()) GTEST_SKIP() << "the machine has one device of this backend";
  const uint64_t seed = octavo::testing::FreshSeed();
  LanesRun one({devices[0].get()}, seed), two({devices[0].get(), devices[1].get()}, seed);
  EXPECT_EQ(two.lanes_.SpreadNames(), (std::vector<std::string>{"devices/0", "devices/1"}));
  DeviceLanes::SealSum sums[2];
  for (LanesRun* run : {&one, &two}) {
    ASSERT_THAT(run->lanes_.BeginVolume(&run->slot_), IsOk());
    run->Take(0, kRecords);
    sums[run == &two] = run->Seal({});
  }
  EXPECT_EQ(sums[0].digest, sums[1].digest);
  EXPECT_GT(sums[0].clipped_below + sums[0].clipped_above, 0);
  EXPECT_EQ(sums[0].clipped_below, sums[1].clipped_below);
  EXPECT_EQ(sums[0].clipped_above, sums[1].clipped_above);
  EXPECT_TRUE(one.Voxels() == two.Voxels());
}

TEST_P(DeviceLanesTest, WhatIsMissingIsFilledWhereverItWouldHaveBeen) {
  auto devices = SeveralDevices(GetParam());
  if (devices.empty()) devices = SeveralDevices(GetParam(), 1);
  std::vector<Device*> used;
  for (const auto& device : devices) used.push_back(device.get());
  LanesRun run(used, octavo::testing::FreshSeed());
  // The volume before leaves its counts in the slot.
  ASSERT_THAT(run.lanes_.BeginVolume(&run.slot_), IsOk());
  run.Take(0, kRecords);
  run.Seal({});
  const std::vector<uint8_t> whole = run.Voxels();
  ASSERT_THAT(run.lanes_.BeginVolume(&run.slot_), IsOk());
  run.Take(0, 96);
  run.Seal({{96, kRecords - 96}});
  const std::vector<uint8_t> part = run.Voxels();
  const size_t begin = static_cast<size_t>(96 * run.of_.scan.shape[2]);
  EXPECT_TRUE(
      std::equal(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(begin), whole.begin()));
  const auto fill = static_cast<uint8_t>(FillPattern(DType::kU8));
  EXPECT_TRUE(std::all_of(part.begin() + static_cast<std::ptrdiff_t>(begin), part.end(),
                          [&](uint8_t v) { return v == fill; }));
  EXPECT_FALSE(std::equal(part.begin() + static_cast<std::ptrdiff_t>(begin), part.end(),
                          whole.begin() + static_cast<std::ptrdiff_t>(begin)));
}

TEST_P(DeviceLanesTest, AReplacedProcessorIsKeptUntilItIsTaken) {
  LanesRun run({&SharedDevice(GetParam())}, 1);
  ASSERT_THAT(run.lanes_.BeginVolume(&run.slot_), IsOk());
  run.Take(0, kBlock);
  EXPECT_TRUE(run.lanes_.TakeReplaced().empty());
  auto next = SpectralProcessor::Create(run.of_.scan.chain, run.lanes_.home());
  ASSERT_THAT(next.status(), IsOk());
  std::vector<std::shared_ptr<SpectralProcessor>> processors;
  processors.push_back(*std::move(next));
  ASSERT_THAT(run.lanes_.Replace(std::move(processors), 1).status(), IsOk());
  const auto replaced = run.lanes_.TakeReplaced();  // still in use
  EXPECT_EQ(replaced.size(), 1u);
  EXPECT_TRUE(run.lanes_.TakeReplaced().empty());
  EXPECT_TRUE(run.lanes_.Synchronize().ok());
}

TEST_P(DeviceLanesTest, TheFailureNamesTheDeviceThatIsLost) {
  auto devices = SeveralDevices(GetParam());
  if (devices.empty()) GTEST_SKIP() << "the machine has one device of this backend";
  ScanSurroundings of(ResolvedKnown({.ascans_per_bscan = kAscans, .bscans_per_volume = kBscans}));
  const DeviceLanes lanes(of.scan, of.Charge({devices[0].get(), devices[1].get()}));
  EXPECT_EQ(lanes.FailureOf(absl::InternalError("a launch failed")).code, Reason::kDeviceError);
  EXPECT_EQ(lanes.FailureOf(absl::InternalError("a launch failed")).reason, "a launch failed");
  devices[1]->InjectFault("says the test");
  const DeviceLanes::Failure failure = lanes.FailureOf(absl::InternalError("a launch failed"));
  EXPECT_EQ(failure.code, Reason::kDeviceLost);
  EXPECT_EQ(failure.reason.find("devices/1 is lost"), 0u) << failure.reason;
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceLanesTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
