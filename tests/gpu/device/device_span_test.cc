#include "gpu/device/device_span.h"

#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/support/device/backend_param.h"

namespace octavo {
namespace {

// The type states the kind of memory and whether it may be written.
static_assert(std::is_convertible_v<DeviceSpan<float>, DeviceSpan<const float>>);
static_assert(!std::is_convertible_v<DeviceSpan<const float>, DeviceSpan<float>>);
static_assert(!std::is_convertible_v<DeviceSpan<float>, HostSpan<float>>);
static_assert(!std::is_convertible_v<HostSpan<float>, DeviceSpan<const float>>);
static_assert(!std::is_convertible_v<DeviceSpan<float>, DeviceSpan<double>>);
static_assert(!std::is_convertible_v<std::vector<float>, DeviceSpan<const float>>);
static_assert(std::is_convertible_v<std::vector<float>, HostSpan<const float>>);
static_assert(!std::is_convertible_v<float*, DeviceSpan<float>>);
// A span costs as much as a pointer and a count.
static_assert(sizeof(DeviceSpan<float>) == 2 * sizeof(void*));
static_assert(std::is_trivially_copyable_v<DeviceSpan<float>>);

TEST(DeviceSpanTest, IsAPointerAndACount) {
  float values[10] = {};
  const DeviceSpan<float> span(values, 10);
  EXPECT_EQ(span.data(), values);
  EXPECT_EQ(span.count(), 10);
  EXPECT_EQ(span.bytes(), 40);
  EXPECT_TRUE(span);
  EXPECT_EQ(span.From(4).data(), values + 4);
  EXPECT_EQ(span.From(4).count(), 6);
  EXPECT_EQ(span.From(4).First(2).count(), 2);
  const DeviceSpan<const float> read = span;
  EXPECT_EQ(read.data(), values);
  EXPECT_EQ(span.As<double>().count(), 5);
  EXPECT_EQ(span.First(3).As<double>().count(), 1);
  EXPECT_FALSE(DeviceSpan<float>());
  EXPECT_FALSE(DeviceSpan<const float>(nullptr));
  EXPECT_EQ(DeviceSpan<float>().count(), 0);
}

class DeviceSpanCopyTest : public testing::BackendTest {};

TEST_P(DeviceSpanCopyTest, BuffersGiveViewsThatAreCopied) {
  std::vector<int32_t> values(100), back(100);
  std::iota(values.begin(), values.end(), 7);
  const DeviceBuffer buffer = device_.Allocate(402).value();
  EXPECT_EQ(buffer.span<int32_t>().count(), 100);  // whole elements
  const PinnedBuffer pinned = device_.AllocatePinned(400).value();
  ASSERT_TRUE(device_.Upload(stream_.ref(), buffer.span<int32_t>(), values).ok());
  ASSERT_TRUE(device_
                  .Download(stream_.ref(), pinned.span<int32_t>().First(60),
                            buffer.span<int32_t>().From(40))
                  .ok());
  ASSERT_TRUE(stream_.ref().Synchronize().ok());
  EXPECT_THAT(std::vector<int32_t>(pinned.as<int32_t>(), pinned.as<int32_t>() + 60),
              ::testing::ElementsAreArray(values.begin() + 40, values.end()));
}

TEST_P(DeviceSpanCopyTest, ACopyToAShorterViewIsRefused) {
  const std::vector<int32_t> values(100);
  const DeviceBuffer buffer = device_.Allocate(400).value();
  const absl::Status status =
      device_.Upload(stream_.ref(), buffer.span<int32_t>().First(99), values);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "a copy of 100 elements to where 99 have room");
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceSpanCopyTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
