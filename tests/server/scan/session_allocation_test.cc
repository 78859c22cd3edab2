// A session allocates no memory per block: the test counts allocations on every thread of the
// program while blocks pass through it.

#include "tests/support/allocation_counter.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;
using testing::SessionRun;

class SessionAllocationTest : public ::testing::TestWithParam<std::string> {
 protected:
  /// Allocations while the middle half of a volume of `blocks` blocks passes through `devices`.
  static int64_t Count(std::vector<Device*> devices, int64_t blocks) {
    constexpr int64_t kSamples = 1024, kLine = 64, kBlock = 1024;
    const ResolvedScan scan = ResolvedKnown(
        {.ascans_per_bscan = kLine, .bscans_per_volume = kBlock / kLine * blocks, .volumes = 1},
        [](ScanSpec& spec) {
          spec.acquisition.samples_per_record = kSamples;
          spec.acquisition.records_per_block =
              kBlock;  // 2 MiB: no gathering, each block takes the full path
        });
    EXPECT_EQ(scan.chain.max_records_per_block, kBlock);
    int64_t begin = 0, end = 0;
    auto source = std::make_unique<KnownSource>(
        KnownRecords(5, kSamples), scan.volume_records, nullptr, [&](int64_t next) {
          if (begin == 0 && next >= scan.volume_records / 4) begin = octavo::testing::Allocations();
          if (end == 0 && next >= scan.volume_records * 3 / 4) end = octavo::testing::Allocations();
        });
    SessionRun run(std::move(devices));
    EXPECT_THAT(run.Start(scan, std::move(source)), IsOk());
    EXPECT_EQ(run.WaitForTheEnd().state, ScanState::kDone);
    return end - begin;
  }
};

// The rate meter keeps a sample every 50 ms, and a queue may grow once. Neither happens per block.
constexpr int64_t kOnceInAWhile = 20;  // for 50 blocks

TEST_P(SessionAllocationTest, BlocksGoThroughWithoutAny) {
  if (!octavo::testing::kCountsAllocations) GTEST_SKIP() << "a sanitizer has operator new";
  EXPECT_LE(Count({&octavo::testing::SharedDevice(GetParam())}, 100), kOnceInAWhile);
  const int64_t before = octavo::testing::Allocations();
  ::operator delete(::operator new(8));
  EXPECT_GT(octavo::testing::Allocations() - before, 0) << "the counter does not count";
}

TEST_P(SessionAllocationTest, NorWhenTheyAreSpread) {
  if (!octavo::testing::kCountsAllocations) GTEST_SKIP() << "a sanitizer has operator new";
  auto devices = octavo::testing::SeveralDevices(GetParam());
  if (devices.empty()) GTEST_SKIP() << "the machine has one device of this backend";
  EXPECT_LE(Count({devices[0].get(), devices[1].get()}, 100), kOnceInAWhile);
}

INSTANTIATE_TEST_SUITE_P(Backends, SessionAllocationTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
