// Products that subscribers request yield to acquisition. A source that cannot wait loses no record
// to them, omitted products are counted, and each subscriber has its turn.

#include <atomic>
#include <map>

#include "tests/support/device/forwarding_device.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::ForwardingDevice;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;
using testing::SessionRun;

constexpr int64_t kAscans = 24;

/// Makes copies of whole planes (B-scans, angiograms) to the host slow.
class SlowPlanes final : public ForwardingDevice {
 public:
  SlowPlanes(Device& inner, int64_t plane_bytes, int64_t delay_ns)
      : ForwardingDevice(inner), plane_bytes_(plane_bytes), delay_ns_(delay_ns) {}
  absl::Status CopyToHost(StreamRef stream, void* dst, const void* src, int64_t bytes) override {
    if (bytes == plane_bytes_) OCTAVO_RETURN_IF_ERROR(inner_.Delay(stream, delay_ns_));
    return inner_.CopyToHost(stream, dst, src, bytes);
  }

 private:
  const int64_t plane_bytes_, delay_ns_;
};

/// Known records of a source that cannot wait. It still waits for up to `patience`, because a busy
/// machine may be slow. If the ring is full for longer, that has another cause, and records are
/// lost.
class Impatient final : public Source {
 public:
  Impatient(const KnownRecords& records, int64_t total, std::atomic<ScanSession*>* session)
      : inner_(records, total, nullptr, nullptr), total_(total), session_(session) {}
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    const auto until = std::chrono::steady_clock::now() + patience_;
    while (*session_ == nullptr || session_->load()->Status().ring_occupancy > 0.5) {
      if (*session_ != nullptr && std::chrono::steady_clock::now() > until) patience_ = {};
      if (stop.stop_requested() || patience_.count() == 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    auto block = inner_.Next(slot, max_records, stop);
    if (block.ok()) block->first_record += skipped_, next_ = block->first_record + block->records;
    return block;
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token) override {
    const SourceBlock block{.first_record = next_,
                            .records = std::min(records, total_ - next_),
                            .acquired = clock_.Now()};
    skipped_ += block.records;
    next_ += block.records;
    return block;
  }
  bool CanWait() const override { return false; }

 private:
  KnownSource inner_;
  const int64_t total_;
  std::atomic<ScanSession*>* const session_;
  const SystemClock clock_;
  int64_t next_ = 0, skipped_ = 0;
  std::chrono::milliseconds patience_{5000};
};

/// Runs `scan` from a source that cannot wait, to its end, and checks that no record is lost.
void LoseNothing(SessionRun& run, const ResolvedScan& scan, const KnownRecords& records,
                 int64_t volumes) {
  std::atomic<ScanSession*> session{nullptr};
  ASSERT_THAT(run.Start(scan, std::make_unique<Impatient>(records, scan.volume_records * volumes,
                                                          &session)),
              IsOk());
  session = run.session();
  const ScanStatus ended = run.WaitForTheEnd();
  EXPECT_EQ(ended.state, ScanState::kDone) << ended.reason;
  EXPECT_EQ(ended.blocks_dropped, 0);
  EXPECT_EQ(ended.missing_ascans, 0);
  EXPECT_EQ(ended.volumes_done, volumes);
}

using Subscriptions = std::vector<std::shared_ptr<Subscription>>;

/// One subscription for each of the first `bscans` B-scans of a volume.
absl::StatusOr<Subscriptions> WantBscans(SessionRun& run, int64_t bscans, Delivery delivery) {
  Subscriptions subscriptions;
  for (int64_t i = 0; i < bscans; ++i) {
    SubscribeSpec spec{.products = {Product::kBscan},
                       .delivery = delivery,
                       .queue_length = 1024,
                       .previews = false};
    spec.axis = FrameAxis::kY;
    spec.plane_index = i;
    auto subscription = run.publisher().Subscribe(spec, [] {});
    if (!subscription.ok()) return subscription.status();
    subscriptions.push_back(*std::move(subscription));
  }
  return subscriptions;
}

class ProductYieldTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ProductYieldTest, ASourceThatCannotWaitLosesNothing) {
  constexpr int64_t kVolumes = 12, kBscans = 640;
  const KnownRecords records(octavo::testing::FreshSeed(), 64);
  const ResolvedScan scan = ResolvedKnown(
      {.ascans_per_bscan = kAscans, .bscans_per_volume = kBscans, .volumes = kVolumes},
      [](ScanSpec& spec) {
        spec.retention.mode = RetentionMode::kLive;
        spec.retention.hold_slots = 3;
        spec.overrun = Overrun::kDropBlock;
        spec.acquisition.ring_blocks = 8;
        spec.acquisition.records_per_block = 400;
      });
  // All planes of a volume take longer (12.8 s) than the source waits; the first few do not.
  SlowPlanes device(SharedDevice(GetParam()), kAscans * scan.shape[2] * SizeOf(scan.chain.output),
                    20'000'000);
  SessionRun run({&device});
  ASSERT_OK_AND_ASSIGN(const auto subscriptions, WantBscans(run, kBscans, Delivery::kDropOldest));
  ASSERT_NO_FATAL_FAILURE(LoseNothing(run, scan, records, kVolumes));
  // Each frame was delivered or is counted as dropped.
  uint64_t delivered = 0;
  for (const auto& subscription : subscriptions) {
    for (Delivered next; subscription->Take(&next);) ++delivered;
  }
  Stats stats;
  run.publisher().AddTo(&stats);
  const int64_t left_out = stats.frames_dropped[{"bscan", "yielded"}],
                no_memory = stats.frames_dropped[{"bscan", "no_memory"}];
  EXPECT_GT(delivered, 0u);
  EXPECT_GT(left_out, 0);
  EXPECT_EQ(static_cast<int64_t>(delivered) + left_out + no_memory, kVolumes * kBscans);
}

// A source that can wait waits, and no product is left out.
TEST_P(ProductYieldTest, ASourceThatCanWaitWaits) {
  constexpr int64_t kVolumes = 4, kBscans = 40;
  const KnownRecords records(octavo::testing::FreshSeed(), 64);
  const ResolvedScan scan = ResolvedKnown(
      {.ascans_per_bscan = kAscans, .bscans_per_volume = kBscans, .volumes = kVolumes});
  SlowPlanes device(SharedDevice(GetParam()), kAscans * scan.shape[2] * SizeOf(scan.chain.output),
                    2'000'000);
  SessionRun run({&device});
  ASSERT_OK_AND_ASSIGN(const auto subscriptions, WantBscans(run, kBscans, Delivery::kLossless));
  ASSERT_THAT(run.Start(scan, std::make_unique<KnownSource>(records, scan.volume_records * kVolumes,
                                                            nullptr, nullptr)),
              IsOk());
  EXPECT_EQ(run.WaitForTheEnd().state, ScanState::kDone);
  for (const auto& subscription : subscriptions) {
    int64_t frames = 0;
    for (Delivered next; subscription->Take(&next);) ++frames;
    EXPECT_EQ(frames, kVolumes);
  }
}

/// A LIVE scan of volumes of 5 B-scans of two repeats each, with angiograms.
ResolvedScan WithAngiograms(int64_t volumes) {
  Pattern repeated{.ascans_per_bscan = kAscans, .bscans_per_volume = 5, .volumes = volumes};
  repeated.kind = PatternKind::kRepeatedRaster;
  repeated.repeat_count = 2;
  return ResolvedKnown(repeated, [](ScanSpec& spec) {
    spec.products.angiography = 1;
    spec.retention.mode = RetentionMode::kLive;
    spec.retention.hold_slots = 3;
    spec.overrun = Overrun::kDropBlock;
    spec.acquisition.ring_blocks = 16;
  });
}
int64_t AngiogramBytes() { return 5 * kAscans * static_cast<int64_t>(sizeof(float)); }
absl::StatusOr<std::shared_ptr<Subscription>> WantAngiograms(SessionRun& run) {
  return run.publisher().Subscribe({.products = {Product::kAngiogram},
                                    .delivery = Delivery::kLossless,
                                    .queue_length = 1024,
                                    .previews = false},
                                   [] {});
}

// Angiograms take so long that volumes pile up behind them. The scan leaves angiograms out and
// loses no record, and a LOSSLESS subscription ends at the first that is left out.
TEST_P(ProductYieldTest, AngiogramsYieldToASourceThatCannotWait) {
  constexpr int64_t kVolumes = 8;
  const KnownRecords records(octavo::testing::FreshSeed(), 64);
  const ResolvedScan scan = WithAngiograms(kVolumes);
  SlowPlanes device(SharedDevice(GetParam()), AngiogramBytes(), 500'000'000);
  SessionRun run({&device});
  ASSERT_OK_AND_ASSIGN(const auto subscription, WantAngiograms(run));
  ASSERT_NO_FATAL_FAILURE(LoseNothing(run, scan, records, kVolumes));
  uint64_t delivered = 0;
  for (Delivered next; subscription->Take(&next); ++delivered)
    EXPECT_EQ(next.frame->sequence, delivered);
  absl::Status end;
  ASSERT_TRUE(subscription->Ended(&end));
  EXPECT_THAT(end, IsError(absl::StatusCode::kResourceExhausted, "without losing records"));
  Stats stats;
  run.publisher().AddTo(&stats);
  EXPECT_GT((stats.frames_dropped[{"angiogram", "yielded"}]), 0);
  EXPECT_EQ((stats.frames_dropped[{"angiogram", "no_memory"}]), 0);
}

TEST_P(ProductYieldTest, NoAngiogramIsLeftOutIfTheSourceCanWait) {
  constexpr int64_t kVolumes = 8;
  const KnownRecords records(octavo::testing::FreshSeed(), 64);
  const ResolvedScan scan = WithAngiograms(kVolumes);
  SlowPlanes device(SharedDevice(GetParam()), AngiogramBytes(), 100'000'000);
  SessionRun run({&device});
  ASSERT_OK_AND_ASSIGN(const auto subscription, WantAngiograms(run));
  ASSERT_THAT(run.Start(scan, std::make_unique<KnownSource>(records, scan.volume_records * kVolumes,
                                                            nullptr, nullptr)),
              IsOk());
  EXPECT_EQ(run.WaitForTheEnd().state, ScanState::kDone);
  int64_t delivered = 0;
  for (Delivered next; subscription->Take(&next);) ++delivered;
  EXPECT_EQ(delivered, kVolumes);
}

INSTANTIATE_TEST_SUITE_P(Backends, ProductYieldTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
