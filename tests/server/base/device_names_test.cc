#include "server/base/device_names.h"

#include <optional>

#include "gtest/gtest.h"

namespace octavo::base {
namespace {

TEST(DeviceNamesTest, TheHostForJobsComesLast) {
  const DeviceNames names(3, /*host_for_jobs=*/true);
  EXPECT_EQ(names.size(), 3);
  EXPECT_EQ(names.numbered(), 2);
  EXPECT_EQ(names.Name(0), "devices/0");
  EXPECT_EQ(names.Name(1), "devices/1");
  EXPECT_EQ(names.Name(2), "devices/host");
  for (int d = 0; d < 3; ++d) {
    EXPECT_EQ(names.Find(names.Name(d)), d);
    EXPECT_EQ(names.IsForJobs(d), d == 2);
  }
  EXPECT_EQ(names.Find("devices/2"), std::nullopt) << "its index is not its name";
  EXPECT_EQ(names.Numbered(), "devices/0 to devices/1");
  EXPECT_EQ(names.All(), "devices/0 to devices/1, devices/host");
}

TEST(DeviceNamesTest, ASingleDeviceIsNoRange) {
  EXPECT_EQ(DeviceNames(1).Numbered(), "devices/0");
  EXPECT_EQ(DeviceNames(1).All(), "devices/0");
  EXPECT_EQ(DeviceNames(2, /*host_for_jobs=*/true).Numbered(), "devices/0");
  EXPECT_EQ(DeviceNames(2, /*host_for_jobs=*/true).All(), "devices/0, devices/host");
}

TEST(DeviceNamesTest, WithoutIt) {
  const DeviceNames names(3);
  EXPECT_EQ(names.size(), 3);
  EXPECT_EQ(names.numbered(), 3);
  EXPECT_EQ(names.Name(2), "devices/2");
  EXPECT_EQ(names.Find("devices/2"), 2);
  EXPECT_FALSE(names.IsForJobs(2));
  for (const char* text : {"devices/host", "devices/3", "host", "", "devices/", "devices/02"})
    EXPECT_EQ(names.Find(text), std::nullopt) << text;
  EXPECT_EQ(names.All(), "devices/0 to devices/2");
}

}  // namespace
}  // namespace octavo::base
