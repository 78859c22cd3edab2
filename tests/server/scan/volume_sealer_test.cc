#include "server/scan/volume_sealer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/backend/open_devices.h"
#include "tests/support/scan/builder_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::BuilderParts;
using testing::Captures;
using testing::FewAscans;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;

constexpr int64_t kRecords = 24, kSamples = 64;  // of a volume, of a record

/// The retire thread's part of a scan without its session: a test pushes what the device has done,
/// and the sealer follows on the same thread.
class SealerRun : public BuilderParts {
 public:
  explicit SealerRun(ResolvedScan scan, Device& device = SharedDevice("host"))
      : BuilderParts(std::move(scan), /*source_waits=*/false, device),
        acquirer(std::make_unique<KnownSource>(KnownRecords(3, kSamples), 100, nullptr, nullptr),
                 of.scan, &of.progress),
        frames("scans/x", &of.store, &of.publisher,
               std::make_shared<FramePool>(&SharedDevice("host"), 16 << 20)),
        sealer_(of.scan, {.scan = "scans/x",
                          .clock = &of.clock,
                          .completions = &completions,
                          .lanes = &lanes,
                          .acquirer = &acquirer,
                          .memory = &memory,
                          .store = &of.store,
                          .publisher = &of.publisher,
                          .frames = &frames,
                          .retention = &retention,
                          .events = &of.events,
                          .progress = &of.progress,
                          .life = &of.life}) {
    EXPECT_THAT(acquirer.Allocate(device), IsOk());
    EXPECT_THAT(frames.OpenStream(device), IsOk());
    EXPECT_THAT(
        completions.Allocate(device, 8, lanes.size(), of.scan.chain.raw_type == DType::kF32),
        IsOk());
    of.publisher.ScanStarted("scans/x", {}, {});
  }
  ~SealerRun() { (void)lanes.Synchronize(); }  // before the events go

  /// Volume `index`; all its records have come.
  std::shared_ptr<ActiveVolume> Complete(int64_t index) {
    EXPECT_THAT(builder.Begin(index, {}), IsOk());
    const auto complete =
        builder.Add({.volume = index, .first_record = 0, .records = kRecords, .active = kRecords},
                    reinterpret_cast<const uint8_t*>(raw_.data()), {});
    EXPECT_THAT(complete.status(), IsOk());
    EXPECT_TRUE(*complete);
    std::shared_ptr<ActiveVolume> volume = builder.TakeActive();
    EXPECT_THAT(builder.End(*volume), IsOk());
    return volume;
  }
  /// Work of which the device has passed the end; `volume`: that it completes.
  Completion Work(std::shared_ptr<ActiveVolume> volume = nullptr) {
    Completion item;
    item.event = completions.TakeEvent();
    std::fill_n(completions.SealWords(item.event), kSealWords + 1, 0);
    item.volume = std::move(volume);
    return item;
  }
  void Push(Completion item) {
    EXPECT_THAT(completions.Push(std::move(item), lanes.compute()), IsOk());
  }
  /// The sealer follows all that was pushed.
  void Run() {
    completions.Close();
    sealer_.Run();
  }
  VolumeStatus Get(const ActiveVolume& volume) { return *of.store.Get(volume.status.name); }
  int64_t Lost(const std::string& product, const std::string& why) {
    Stats stats;
    of.publisher.AddTo(&stats);
    return stats.frames_dropped[{product, why}];
  }
  std::shared_ptr<Subscription> Subscribe(Product product) {
    auto subscription = of.publisher.Subscribe(
        {.products = {product}, .delivery = Delivery::kDropOldest, .queue_length = 100}, [] {});
    EXPECT_THAT(subscription.status(), IsOk());
    return *std::move(subscription);
  }
  VolumeSealer& sealer() { return sealer_; }

  Acquirer acquirer;
  CompletionQueue completions;
  VolumeFrames frames;

 private:
  const std::vector<uint16_t> raw_ = std::vector<uint16_t>(kRecords * kSamples, 100);
  VolumeSealer sealer_;
};

TEST(VolumeSealerTest, AVolumeIsHeldWithWhatTheDeviceCounted) {
  SealerRun run(FewAscans(Captures(2)));
  const auto volume = run.Complete(0);
  volume->status.clipped_below = 1;
  volume->status.clipped_above = 2;
  Completion item = run.Work(volume);
  uint64_t* const words = run.completions.SealWords(item.event);
  words[0] = 0x1234;
  words[1] = 7;
  words[2] = 3;
  item.records = 11;
  item.acquired = run.of.clock.Now();
  run.Push(std::move(item));
  run.of.clock.Advance(2);
  run.Run();
  const VolumeStatus held = run.Get(*volume);
  EXPECT_EQ(held.state, VolumeState::kHeld);
  EXPECT_EQ(held.digest, "sum64:0000000000001234");
  EXPECT_EQ(held.clipped_below, 8);
  EXPECT_EQ(held.clipped_above, 5);
  EXPECT_EQ(volume->slot, nullptr) << "the store has it alone";
  const ScanStatus status = run.of.Status();
  EXPECT_EQ(status.records, 11);
  EXPECT_EQ(status.volumes_done, 1);
  EXPECT_EQ(status.voxels, kRecords * run.of.scan.shape[2]);
  EXPECT_EQ(status.clipped_below, 8);
  EXPECT_EQ(status.clipped_above, 5);
  EXPECT_DOUBLE_EQ(run.of.progress.Timings().volume_latency.sum, 2);
  const ScanEvent event = run.of.Events().back();
  EXPECT_EQ(event.kind, EventKind::kVolumeDone);
  EXPECT_EQ(event.text, "volume HELD");
  EXPECT_EQ(event.volume_index, 0);
  EXPECT_EQ(run.completions.Volumes(), 0) << "its event can be used again";
}

TEST(VolumeSealerTest, VoxelsThatDidNotComeAreNotClipped) {
  SealerRun run(FewAscans(Captures(2)));
  const auto volume = run.Complete(0);
  volume->status.missing_ascans = 20;
  Completion item = run.Work(volume);
  const int64_t voxels = (kRecords - 20) * run.of.scan.shape[2];
  run.completions.SealWords(item.event)[1] =
      static_cast<uint64_t>(voxels / 50);  // two in a hundred
  run.Push(std::move(item));
  run.Run();
  EXPECT_EQ(run.of.Status().voxels, voxels);
  EXPECT_EQ(run.of.events.Warnings().size(), 1u);
}

TEST(VolumeSealerTest, RawRecordsAreHeldBesideTheirVolume) {
  SealerRun run(FewAscans([](ScanSpec& spec) {
    Captures(2)(spec);
    spec.retention.hold_raw = true;
  }));
  const auto volume = run.Complete(0);
  Completion item = run.Work(volume);
  *run.completions.RawDigestWord(item.event) = 0xabc;
  run.Push(std::move(item));
  run.Run();
  const auto raw = run.of.store.Get(volume->raw_status.name);
  EXPECT_EQ(raw->state, VolumeState::kHeld);
  EXPECT_EQ(raw->digest, "sum64:0000000000000abc");
  EXPECT_EQ(run.Get(*volume).digest, "sum64:0000000000000000");
  EXPECT_EQ(volume->raw_slot, nullptr);
}

TEST(VolumeSealerTest, WithItsDeviceAVolumeAndTheScanFail) {
  const OpenedDevices opened = OpenDevices("host").value();
  Device& device = *opened.devices[0];
  SealerRun run(FewAscans([](ScanSpec& spec) {
                  Captures(2)(spec);
                  spec.retention.hold_raw = true;
                  spec.retention.disposition = Disposition::kAutoDiscard;
                }),
                device);
  const auto whole = run.Subscribe(Product::kVolume);
  const auto volume = run.Complete(0);
  Completion item = run.Work(volume);
  item.frames.emplace_back().key = {.product = Product::kMip};
  run.Push(std::move(item));
  EXPECT_TRUE(run.lanes.Synchronize().ok());
  device.InjectFault("pulled out");
  run.Run();
  for (const std::string& name : {volume->status.name, volume->raw_status.name}) {
    const auto failed = run.of.store.Get(name);
    EXPECT_EQ(failed->state, VolumeState::kFailed);
    EXPECT_EQ(failed->reason, "device error: pulled out");
  }
  EXPECT_EQ(volume->slot, nullptr);
  EXPECT_TRUE(run.of.life.aborted().stop_requested());
  EXPECT_EQ(run.of.Status().reason_code, Reason::kDeviceLost);
  EXPECT_EQ(run.of.Status().volumes_done, 0);
  EXPECT_EQ(run.Lost("mip", "no_memory"), 1);
  EXPECT_FALSE(run.frames.KeepsSlots());
  EXPECT_EQ(run.Lost("volume", "no_memory"), 0) << "nothing is offered of what has failed";
}

TEST(VolumeSealerTest, BlocksGoBackToTheRing) {
  SealerRun run(FewAscans([](ScanSpec& spec) {
    Captures(2)(spec);
    spec.acquisition.ring_blocks = 8;
  }));
  run.acquirer.Run({}, {});
  int64_t blocks = 0;
  for (BlockRing::Part part; run.acquirer.ring().Pop(&part, {}); ++blocks) {
    Completion item = run.Work();
    item.ring_slot = part.slot;
    item.records = part.block.records;
    item.enqueued_ns = run.of.clock.Now().monotonic_ns;
    run.Push(std::move(item));
  }
  run.Push(run.Work());  // the end of something else
  EXPECT_GT(run.acquirer.Occupancy(), 0);
  run.of.clock.Advance(0.5);
  run.Run();
  EXPECT_EQ(run.acquirer.Occupancy(), 0);
  EXPECT_EQ(run.of.Status().records, 100);
  ScanTimings timings = run.of.progress.Timings();
  EXPECT_EQ(timings.stages["process"].count, blocks);
  EXPECT_DOUBLE_EQ(timings.stages["process"].sum, 0.5 * static_cast<double>(blocks));
}

TEST(VolumeSealerTest, FramesArePublishedAndThoseThatWereNotMadeAreTold) {
  SealerRun run(FewAscans(Captures(2)));
  const auto subscription = run.Subscribe(Product::kMip);
  Completion item = run.Work(run.Complete(0));
  item.enqueued_ns = 17;
  const auto memory = std::make_shared<std::array<uint8_t, 8>>();
  const auto add = [&](bool lost, bool yielded) {
    PendingFrame& pending = item.frames.emplace_back();
    pending.key = {.product = Product::kMip};
    pending.frame.parent = "scans/x";
    pending.frame.product = Product::kMip;
    pending.frame.payload = {.owner = memory, .data = memory->data(), .size = 8};
    pending.lost = lost;
    pending.yielded = yielded;
  };
  add(false, false);
  add(true, false);
  add(true, true);
  add(true, true);
  run.of.clock.Advance(1);
  run.Push(std::move(item));
  run.Run();
  Delivered next;
  ASSERT_TRUE(subscription->Take(&next));
  EXPECT_EQ(next.frame->stages.taken_ns, 17);
  EXPECT_EQ(next.frame->stages.seen_ns, run.of.clock.Now().monotonic_ns);
  EXPECT_FALSE(subscription->Take(&next));
  EXPECT_EQ(run.Lost("mip", "no_memory"), 1);
  EXPECT_EQ(run.Lost("mip", "yielded"), 2);
}

TEST(VolumeSealerTest, WholeVolumesAreOfferedToTheirSubscribers) {
  SealerRun run(FewAscans(Captures(2)));
  const auto subscription = run.Subscribe(Product::kVolume);
  const auto volume = run.Complete(0);
  run.Push(run.Work(volume));
  run.Run();
  EXPECT_TRUE(run.frames.KeepsSlots());
  run.frames.Close();
  run.frames.Run();
  Delivered next;
  ASSERT_TRUE(subscription->Take(&next));
  EXPECT_EQ(next.frame->volume, volume->status.name);
}

TEST(VolumeSealerTest, AHeldVolumeIsDisposedOf) {
  SealerRun run(FewAscans([](ScanSpec& spec) {
    Captures(2)(spec);
    spec.retention.disposition = Disposition::kAutoDiscard;
  }));
  const auto volume = run.Complete(0);
  EXPECT_EQ(run.memory.slots().Free(), 1);
  run.Push(run.Work(volume));
  run.Run();
  EXPECT_EQ(run.Get(*volume).state, VolumeState::kDiscarded);
  EXPECT_EQ(run.memory.slots().Free(), 2);
  EXPECT_EQ(run.of.Status().volumes_done, 1);
}

// Three slots, of which two are taken: another must become free if more than one volume is to come.
TEST(VolumeSealerTest, ACountedScanMovesNothingForVolumesThatDoNotCome) {
  for (const int64_t volumes : {0, 3, 4}) {
    SealerRun run(ResolvedKnown({.ascans_per_bscan = 6, .bscans_per_volume = 4, .volumes = volumes},
                                [](ScanSpec& spec) {
                                  Captures(3)(spec);
                                  spec.retention.on_full = OnFull::kSpillHost;
                                  spec.retention.disposition = Disposition::kAsk;
                                }));
    ASSERT_EQ(run.memory.slots().Free(), 3);
    for (int64_t index = 0; index < 2; ++index) run.Push(run.Work(run.Complete(index)));
    run.Run();
    EXPECT_EQ(run.relief.asked > 0, volumes != 3) << volumes;
  }
}

TEST(VolumeSealerTest, RecordsThatAreNotFiniteAreCountedAndToldOnce) {
  SealerRun run(FewAscans([](ScanSpec& spec) {
    Captures(3)(spec);
    spec.acquisition.raw_type = DType::kF32;
  }));
  for (const uint64_t count : {5, 9}) {
    Completion item = run.Work(run.Complete(count == 5 ? 0 : 1));
    *run.completions.NonFiniteWords(item.event) = count;
    run.Push(std::move(item));
  }
  run.Run();
  EXPECT_EQ(run.of.Status().non_finite_records, 9);
  ASSERT_EQ(run.of.events.Warnings().size(), 1u);
  EXPECT_NE(run.of.events.Warnings()[0].find("not finite"), std::string::npos);
}

TEST(VolumeSealerTest, ThoseSinceTheLastVolumeAreCountedAtTheEnd) {
  SealerRun run(FewAscans([](ScanSpec& spec) {
    Captures(2)(spec);
    spec.acquisition.raw_type = DType::kF32;
  }));
  const std::vector<float> records(kRecords * kSamples, std::numeric_limits<float>::quiet_NaN());
  const SourceBlock block{.first_record = 0, .records = kRecords};
  ASSERT_THAT(run.builder.Begin(0, block), IsOk());
  ASSERT_THAT(run.lanes.Upload(0, reinterpret_cast<const uint8_t*>(records.data()), block), IsOk());
  ASSERT_THAT(
      run.lanes.Process(0, block,
                        {.volume = 0, .first_record = 0, .records = kRecords, .active = kRecords},
                        run.builder.active()->slot.get()),
      IsOk());
  ASSERT_THAT(run.lanes.EndBlock(0), IsOk());
  EXPECT_EQ(run.of.Status().non_finite_records, 0);
  run.sealer().CountNonFinite();
  EXPECT_EQ(run.of.Status().non_finite_records, kRecords);
  EXPECT_EQ(run.of.events.Warnings().size(), 1u);
}

TEST(VolumeSealerTest, ADoubtAboutTheFirstRecordsIsTold) {
  SealerRun run(FewAscans([](ScanSpec& spec) {
    Captures(2)(spec);
    spec.processing.background = BackgroundMode::kBscan;
  }));
  const std::vector<uint16_t> same(kRecords * kSamples, 100);
  run.builder.LookAt(reinterpret_cast<const uint8_t*>(same.data()),
                     {.first_record = 0, .records = kRecords});
  const auto volume = run.Complete(0);
  ASSERT_NE(volume->first_records, nullptr);
  run.Push(run.Work(volume));
  run.Run();
  ASSERT_EQ(run.of.events.Warnings().size(), 1u);
  EXPECT_NE(run.of.events.Warnings()[0].find("are the same, sample for sample"), std::string::npos);
  EXPECT_EQ(volume->first_records, nullptr);
}

TEST(VolumeSealerTest, TheStagesOfAVolumeCountIfTheDeviceHasStampedThem) {
  SealerRun run(FewAscans(Captures(2)));
  for (const bool stamped : {false, true}) {
    Completion item = run.Work(run.Complete(stamped ? 1 : 0));
    StageClock& stages = run.completions.stages();
    int64_t* const stamps[] = {stages.UploadStamp(stamped).data(),
                               stages.ProcessedStamp(stamped).data(),
                               stages.OnHostStamp(stamped).data()};
    for (int64_t* const stamp : stamps) *stamp = 1;
    item.uploaded = stamps[0];
    item.processed = stamps[1];
    if (stamped) item.on_host = stamps[2];
    run.Push(std::move(item));
  }
  run.Run();
  EXPECT_EQ(run.of.progress.Timings().stages["upload"].count, 1);
}

}  // namespace
}  // namespace octavo::engine
