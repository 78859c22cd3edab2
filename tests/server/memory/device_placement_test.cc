#include "server/memory/device_placement.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using ::testing::ElementsAre;
using Code = absl::StatusCode;

DeviceLoad Load(int running, int64_t free_bytes, int waiting = 0) {
  return {.running = running, .waiting = waiting, .free_bytes = free_bytes};
}
DeviceLoad Lost() {
  return {
      .health = absl::UnavailableError("gone"), .running = 0, .waiting = 0, .free_bytes = 1 << 30};
}

TEST(DeviceChoiceTest, TheLeastLoadedOneWithRoomIsTaken) {
  const DeviceWish wish{.home_bytes = 100};
  EXPECT_THAT(*ChooseDevices(wish, {Load(1, 1000), Load(0, 200), Load(0, 500)}), ElementsAre(2))
      << "of two idle ones that with more memory";
  EXPECT_THAT(*ChooseDevices(wish, {Load(1, 1000), Load(0, 99), Load(2, 500)}), ElementsAre(0))
      << "idle, but full";
  EXPECT_THAT(*ChooseDevices(wish, {Load(1, 500, 2), Load(1, 200, 1)}), ElementsAre(1))
      << "fewer wait";
  EXPECT_THAT(*ChooseDevices(wish, {Load(0, 50), Load(0, 60)}), ElementsAre(1))
      << "none has room: the ledger will refuse with the best numbers";
  EXPECT_THAT(*ChooseDevices({.device = "auto", .home_bytes = 100}, {Lost(), Load(3, 100)}),
              ElementsAre(1))
      << "the lost one is not taken";
}

TEST(DeviceChoiceTest, ANamedDeviceIsTakenOrItIsSaidWhyNot) {
  EXPECT_THAT(*ChooseDevices({.device = "devices/1"}, {Load(0, 1000), Load(9, 0)}), ElementsAre(1));
  EXPECT_THAT(ChooseDevices({.device = "devices/2"}, {Load(0, 1), Load(0, 1)}),
              IsError(Code::kInvalidArgument, "allowed are auto, devices/0 to devices/1"));
  const auto down = ChooseDevices({.device = "devices/0"}, {Lost(), Load(0, 1)});
  EXPECT_THAT(down, IsError(Code::kUnavailable, "devices/0 is down: gone"));
  EXPECT_EQ(InfoOf(down.status()).reason, Reason::kDeviceDown);
  EXPECT_THAT(ChooseDevices({}, {Lost(), Lost()}),
              IsError(Code::kUnavailable, "no device is healthy"));
}

TEST(DeviceChoiceTest, TheHostForJobsTakesNoScan) {
  const std::vector<DeviceLoad> loads = {Load(0, 1), Load(0, 1)};
  EXPECT_THAT(ChooseDevices({.device = "devices/host", .host_for_jobs = true}, loads),
              IsError(Code::kInvalidArgument,
                      "device: is 'devices/host', which is for tomography and projection jobs, not "
                      "for scans; allowed are auto, devices/0 to devices/1"));
  EXPECT_THAT(
      ChooseDevices({.spread = {.given = true, .devices = {"devices/0", "devices/host"}},
                     .host_for_jobs = true},
                    loads),
      IsError(Code::kInvalidArgument,
              "spread.devices: is 'devices/host', which is for tomography and projection jobs, not "
              "for scans; allowed are devices/0 to devices/1"));
}

TEST(DeviceChoiceTest, AServerWithoutTheHostForJobsSaysSo) {
  const std::string refusal =
      "is 'devices/host', which this server does not have (device.host_for_jobs of its "
      "configuration is false); allowed are ";
  EXPECT_THAT(
      ChooseDevices({.device = "devices/host"}, {Load(0, 1)}),
      IsError(Code::kInvalidArgument, absl::StrCat("device: ", refusal, "auto, devices/0")));
  EXPECT_THAT(ChooseDevices({.spread = {.given = true, .devices = {"devices/host"}}},
                            {Load(0, 1), Load(0, 1)}),
              IsError(Code::kInvalidArgument,
                      absl::StrCat("spread.devices: ", refusal, "devices/0 to devices/1")));
}

TEST(DeviceChoiceTest, ASpreadScanTakesTheLeastLoadedOnes) {
  const std::vector<DeviceLoad> loads = {Load(2, 900), Load(0, 900), Load(1, 900), Lost()};
  EXPECT_THAT(*ChooseDevices({.spread = {.given = true}}, loads), ElementsAre(1, 2, 0))
      << "all healthy ones";
  EXPECT_THAT(*ChooseDevices({.spread = {.given = true, .count = 2}}, loads), ElementsAre(1, 2));
  EXPECT_THAT(*ChooseDevices({.device = "devices/0", .spread = {.given = true, .count = 2}}, loads),
              ElementsAre(0, 1))
      << "home is named";
  EXPECT_THAT(*ChooseDevices({.spread = {.given = true, .count = 1}}, loads), ElementsAre(1));
  EXPECT_THAT(
      *ChooseDevices({.spread = {.given = true, .count = 2}, .home_bytes = 10, .peer_bytes = 950},
                     loads),
      ElementsAre(1, 2));
  EXPECT_THAT(ChooseDevices({.spread = {.given = true, .count = 4}}, loads),
              IsError(Code::kUnavailable, "only 3 devices are healthy"));
  EXPECT_THAT(ChooseDevices({.spread = {.given = true, .count = 5}}, loads),
              IsError(Code::kInvalidArgument, "spread.count: is 5; allowed 0 (all) to 4"));
}

TEST(DeviceChoiceTest, NamedPeersAreCheckedOneByOne) {
  const std::vector<DeviceLoad> loads = {Load(0, 1), Load(0, 1), Lost()};
  const auto spread = [](std::vector<std::string> devices, int64_t count = 0) {
    return Spread{.given = true, .count = count, .devices = std::move(devices)};
  };
  EXPECT_THAT(*ChooseDevices({.spread = spread({"devices/1", "devices/0"})}, loads),
              ElementsAre(1, 0));
  EXPECT_THAT(
      *ChooseDevices({.device = "devices/0", .spread = spread({"devices/1", "devices/0"})}, loads),
      ElementsAre(0, 1));
  EXPECT_THAT(ChooseDevices({.spread = spread({"devices/1", "devices/1"})}, loads),
              IsError(Code::kInvalidArgument, "spread.devices: names devices/1 twice"));
  EXPECT_THAT(ChooseDevices({.spread = spread({"devices/7"})}, loads),
              IsError(Code::kInvalidArgument, "devices/7"));
  EXPECT_THAT(ChooseDevices({.spread = spread({"devices/0", "devices/2"})}, loads),
              IsError(Code::kUnavailable, "devices/2 is down"));
  EXPECT_THAT(ChooseDevices({.spread = spread({"devices/0", "devices/1"}, 3)}, loads),
              IsError(Code::kInvalidArgument, "spread.count"));
  EXPECT_THAT(ChooseDevices({.device = "devices/0", .spread = spread({"devices/1"})}, loads),
              IsError(Code::kInvalidArgument, "device: is devices/0"));
}

}  // namespace
}  // namespace octavo::engine
