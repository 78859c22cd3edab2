// The block path allocates no memory: the test counts allocations on every thread of the program
// while blocks pass through the chain.

#include "gpu/array/project.h"
#include "gpu/spectral/spectral.h"
#include "gpu/spectral/spectral_design.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using AllocationTest = testing::BackendTest;

TEST_P(AllocationTest, BlocksGoThroughWithoutAny) {
  if (!testing::kCountsAllocations) GTEST_SKIP() << "a sanitizer has operator new";
  SpectralConfig c;
  c.samples_per_record = 1024;
  c.max_records_per_block = 512;
  c.window = MakeWindow(WindowKind::kHann, 1024);
  c.phase_rad = MakeDispersionPhase(3e-5, 0, 1024);
  c.background = math::Background::kRolling;
  c.background_group_records = 200;  // some records of each block wait for the next one
  c.background_window_records = 1024;
  c.volume_records = 512;
  c.fft_length = 1024;
  c.depth = 512;
  c.has_levels = true;
  c.level_hi = 60;
  ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
  const DeviceBuffer raw = Upload(std::vector<uint16_t>(512 * 1024, 77)),
                     volume = Poisoned(512 * 512), mip = Poisoned(512), front = Poisoned(512);
  ASSERT_OK_AND_ASSIGN(Event event, device_.NewEvent());
  const VolumeView view{.data = volume.data(), .dtype = DType::kU8, .shape = {1, 512, 512}};
  RecordPlacement placement{.raster = {512, 1, 0, false}};
  const auto block = [&] {  // matchers allocate memory; ASSERT_TRUE does not
    ASSERT_TRUE(processor
                    ->Process(stream_.ref(), raw.data(), 300, placement,
                              {.volume = volume.data(), .volume_ascans = 512, .mip = mip.data()})
                    .ok());
    placement.first_record = 300;
    ASSERT_TRUE(processor
                    ->Process(stream_.ref(), raw.data(), 212, placement,
                              {.volume = volume.data(), .volume_ascans = 512, .mip = mip.data()})
                    .ok());
    placement.first_record = 0;
    ++placement.volume;
    ASSERT_TRUE(Mip(stream_.ref(), device_, view, Axis::kX, 0, 1, false, front.data()).ok());
    ASSERT_TRUE(event.Record(stream_.ref()).ok());
    ASSERT_TRUE(event.Synchronize().ok());
  };
  for (int i = 0; i < 20; ++i) block();
  const int64_t before = testing::Allocations();
  for (int i = 0; i < 50; ++i) block();
  EXPECT_EQ(testing::Allocations() - before, 0);
  const int64_t again = testing::Allocations();
  ::operator delete(::operator new(8));
  EXPECT_GT(testing::Allocations() - again, 0) << "the counter does not count";
}

INSTANTIATE_TEST_SUITE_P(Backends, AllocationTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
