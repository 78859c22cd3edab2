// A scan fed through a ring of shared memory gives, bit for bit, the same volumes as a scan fed by
// another source. The tests use blocks of all sizes, gathered or not, with averaged records, on one
// device and on several. Lost records are missing and counted. A slot is not written again before
// the device has passed it.

#include <atomic>

#include "client/cpp/include/octavo/octavo_ring.h"
#include "gpu/backend/open_devices.h"
#include "server/source/ring_port.h"
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

/// A producer on its own thread: known records in blocks of `most()`, and an end after the whole
/// scan.
class Producer {
 public:
  Producer(std::shared_ptr<RingPort> port, KnownRecords records, int64_t total,
           std::function<uint32_t()> most)
      : port_(std::move(port)),
        records_(records),
        total_(static_cast<uint64_t>(total)),
        most_(std::move(most)),
        thread_([this] { Run(); }) {}
  ~Producer() { thread_.join(); }

 private:
  void Run() {
    while (!port_->CanAttach().ok())
      std::this_thread::yield();  // the session has not opened the ring yet
    auto attached = port_->Attach({.cut = [] {}});
    ASSERT_THAT(attached.status(), IsOk());
    octavo_ring ring;
    char error[256] = "";
    ASSERT_EQ(octavo_ring_map(&ring, attached->fd.get(), error, sizeof error), 0) << error;
    while (ring.next_record < total_) {
      auto* slot = static_cast<uint16_t*>(octavo_ring_begin(&ring, -1));
      if (slot == nullptr) break;
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(
          {ring.block_records, total_ - ring.next_record, most_ ? most_() : ring.block_records}));
      // The memory behind the published records holds junk.
      std::fill(
          slot,
          slot + static_cast<size_t>(ring.block_records) * static_cast<size_t>(records_.samples()),
          uint16_t{0xA5A5});
      for (uint32_t r = 0; r < count; ++r)
        records_.Write(static_cast<int64_t>(ring.next_record) + r, slot + r * records_.samples());
      octavo_ring_publish(&ring, count);
    }
    octavo_ring_end(&ring);
    octavo_ring_close(&ring);
    port_->Detach(attached->connection);
  }

  const std::shared_ptr<RingPort> port_;
  const KnownRecords records_;
  const uint64_t total_;
  const std::function<uint32_t()> most_;
  std::thread thread_;
};

class RingSessionTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kVolumes = 4;
  static Pattern Raster() {
    return {.ascans_per_bscan = 24,
            .bscans_per_volume = 10,
            .volumes = kVolumes,
            .bidirectional = true,
            .flyback_records = 2};
  }
  static ResolvedScan Scan(const std::function<void(ScanSpec&)>& change, bool ring) {
    return ResolvedKnown(Raster(), [&](ScanSpec& spec) {
      if (ring) spec.source.emplace<RingSource>();
      spec.acquisition.record_rate_hz = 1e5;
      spec.processing.axial_spacing_um = 1;
      spec.processing.has_levels = true;  // a ring does not declare its full scale
      spec.processing.level_lo = -20;
      spec.processing.level_hi = 60;
      if (change) change(spec);
    });
  }
  // The outcome of a run with a ring, and of a plain source with the changes `same`.
  RunOutcome RunRing(std::vector<Device*> devices, const ResolvedScan& scan,
                     std::function<uint32_t()> most = nullptr) {
    auto source = OpenSource(scan.spec, {}, &clock_);
    EXPECT_THAT(source.status(), IsOk());
    Producer producer((*source)->ring(), records_,
                      scan.volume_records * kVolumes * scan.chain.record_average, std::move(most));
    return SessionRun::Run(std::move(devices), scan, *std::move(source));
  }
  RunOutcome RunPlain(std::vector<Device*> devices, const ResolvedScan& scan) {
    return SessionRun::Run(std::move(devices), scan,
                           std::make_unique<KnownSource>(
                               records_, scan.volume_records * kVolumes * scan.chain.record_average,
                               nullptr, nullptr));
  }

  const SystemClock clock_;
  const KnownRecords records_{octavo::testing::FreshSeed(), 64};
};

TEST_P(RingSessionTest, ARingGivesWhatOtherSourcesGive) {
  Device& device = SharedDevice(GetParam());
  for (const int64_t block : {5, 50, 300}) {
    for (const bool restless : {false, true}) {
      SCOPED_TRACE(absl::StrCat("blocks of ", block, restless ? " at most" : ""));
      const auto change = [&](ScanSpec& spec) { spec.acquisition.records_per_block = block; };
      auto random = std::make_shared<std::mt19937_64>(7);
      std::function<uint32_t()> most;
      if (restless) most = [random] { return static_cast<uint32_t>(1 + (*random)() % 60); };
      const RunOutcome plain = RunPlain({&device}, Scan(change, false)),
                       ring = RunRing({&device}, Scan(change, true), most);
      ASSERT_EQ(ring.voxels.size(), static_cast<size_t>(kVolumes));
      ExpectSame(ring, plain);
      EXPECT_EQ(ring.scan.state, ScanState::kDone) << ring.scan.reason;
      EXPECT_EQ(ring.scan.reason_code, Reason::kCompleted);
      // The server need not take the flyback after the last B-scan.
      EXPECT_GE(ring.scan.source.records, ring.scan.records);
      EXPECT_LE(ring.scan.source.records - ring.scan.records, Raster().flyback_records);
      EXPECT_EQ(ring.scan.source.lost_records, 0);
    }
  }
}

// Each upload is delayed: if a slot were returned too early, the producer would overwrite it
// meanwhile.
TEST_P(RingSessionTest, ASlotIsLentUntilTheDeviceHasPassedIt) {
  const auto change = [](ScanSpec& spec) { spec.acquisition.records_per_block = 30; };
  const auto tight = [&](ScanSpec& spec) {
    change(spec);
    std::get<RingSource>(spec.source).slots = 3;
  };
  const RunOutcome plain = RunPlain({&SharedDevice(GetParam())}, Scan(change, false));
  UnrulyDevice device(SharedDevice(GetParam()),
                      {.seed = 5, .longest_delay_ns = 400'000, .upload_delay_ns = 1'000'000});
  ExpectSame(RunRing({&device}, Scan(tight, true)), plain);
  EXPECT_EQ(device.guards_broken(), 0);
}

TEST_P(RingSessionTest, MeansOfRecordsAreTheSame) {
  Device& device = SharedDevice(GetParam());
  const auto change = [](ScanSpec& spec) { spec.acquisition.record_average = 3; };
  auto random = std::make_shared<std::mt19937_64>(9);
  const RunOutcome plain = RunPlain({&device}, Scan(change, false));
  ExpectSame(RunRing({&device}, Scan(change, true),
                     [random] { return static_cast<uint32_t>(1 + (*random)() % 70); }),
             plain);
}

TEST_P(RingSessionTest, AScanSpreadOverDevicesIsTheSame) {
  if (GetParam() != "host") GTEST_SKIP() << "several devices are the host's here";
  auto opened = OpenDevices("host", 2);
  ASSERT_THAT(opened.status(), IsOk());
  std::vector<Device*> devices = {opened->devices[0].get(), opened->devices[1].get()};
  const auto change = [](ScanSpec& spec) { spec.acquisition.records_per_block = 26; };
  ExpectSame(RunRing(devices, Scan(change, true)), RunPlain({devices[0]}, Scan(change, false)));
}

INSTANTIATE_TEST_SUITE_P(Backends, RingSessionTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
