#include "server/base/resource_names.h"

#include <optional>

#include "gtest/gtest.h"

namespace octavo::base {
namespace {

TEST(DeviceIndexTest, ReadsWhatDeviceNameWrites) {
  for (const int index : {0, 7, 10, 2147483647}) EXPECT_EQ(DeviceIndex(DeviceName(index)), index);
}

TEST(DeviceIndexTest, RefusesEveryOtherText) {
  for (const char* text : {"", "0", "devices", "devices/", "devices/x", "devices/-1", "devices/+1",
                           "devices/01", "devices/ 1", "devices/1 ", "devices/2147483648",
                           "devices/devices/1", "Devices/1", "scans/1"})
    EXPECT_EQ(DeviceIndex(text), std::nullopt) << text;
}

}  // namespace
}  // namespace octavo::base
