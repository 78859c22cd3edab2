#include "server/source/camera_pixels.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/source/camera.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;

std::vector<uint16_t> Unpack(const char* format, std::vector<uint8_t> bytes, int64_t pixels) {
  std::vector<uint16_t> out(static_cast<size_t>(pixels) + 1, 0xAAAA);
  FindPixelFormat(format)->copy(bytes.data(), out.data(), pixels);
  EXPECT_EQ(out.back(), 0xAAAA) << "wrote too much";
  out.pop_back();
  return out;
}

TEST(CameraPixelsTest, TwelveBitsInBothPackings) {
  // 0x123 and 0xABC. GigE Vision keeps the high bits of each pixel together; the naming convention
  // fills bits from the lowest up.
  EXPECT_THAT(Unpack("Mono12Packed", {0x12, 0xC3, 0xAB}, 2), ElementsAre(0x123, 0xABC));
  EXPECT_THAT(Unpack("Mono12p", {0x23, 0xC1, 0xAB}, 2), ElementsAre(0x123, 0xABC));
  EXPECT_THAT(Unpack("Mono12Packed", {0xFF, 0x0F, 0x00, 0x00, 0xF0, 0xFF}, 4),
              ElementsAre(0xFFF, 0x000, 0x000, 0xFFF));
  EXPECT_THAT(Unpack("Mono12p", {0xFF, 0x0F, 0x00, 0x00, 0xF0, 0xFF}, 4),
              ElementsAre(0xFFF, 0x000, 0x000, 0xFFF));
}

TEST(CameraPixelsTest, WholeBytesAsTheyAre) {
  EXPECT_THAT(Unpack("Mono12", {0x23, 0x01, 0xBC, 0x0A}, 2), ElementsAre(0x123, 0xABC));
  EXPECT_THAT(Unpack("Mono16", {0xFE, 0xFF}, 1), ElementsAre(0xFFFE));
  EXPECT_EQ(FindPixelFormat("Mono8")->stored, DType::kU8);
  for (const char* name : {"Mono10", "RGB8", "mono8", ""})
    EXPECT_EQ(FindPixelFormat(name), nullptr) << name;
}

TEST(FrameNumbersTest, CountFromTheFirstAndJumpOverLostOnes) {
  FrameNumbers numbers;
  EXPECT_EQ(numbers.Number(17), 0);
  EXPECT_EQ(numbers.Number(18), 1);
  EXPECT_EQ(numbers.Number(21), 4);
  EXPECT_EQ(numbers.Number(21), std::nullopt) << "twice";
  EXPECT_EQ(numbers.Number(20), std::nullopt) << "too late";
  EXPECT_EQ(numbers.Number(22), 5);
}

TEST(FrameNumbersTest, SixteenBitsWrapOverZero) {
  FrameNumbers classic;  // GigE Vision: 65535 is followed by 1
  classic.Number(65534);
  EXPECT_EQ(classic.Number(65535), 1);
  EXPECT_EQ(classic.Number(1), 2);
  EXPECT_EQ(classic.Number(3), 4);
  FrameNumbers with_zero;
  with_zero.Number(65535);
  EXPECT_EQ(with_zero.Number(0), 1);
  EXPECT_EQ(with_zero.Number(1), 2);
  for (uint64_t id = 2; id <= 65535; ++id) with_zero.Number(id);
  EXPECT_EQ(with_zero.Number(1), 65538) << "frame 0 was lost";
}

TEST(FrameNumbersTest, FramesFromBeforeAWrapAreLateAndDoNotTurnTheCounterAgain) {
  FrameNumbers numbers;
  numbers.Number(65533);
  EXPECT_EQ(numbers.Number(65535), 2);
  EXPECT_EQ(numbers.Number(1), 3);
  EXPECT_EQ(numbers.Number(65534), std::nullopt) << "it waited for its packets";
  EXPECT_EQ(numbers.Number(2), 4);
}

TEST(FrameNumbersTest, WideIdsDoNotWrapAtSixteenBits) {
  FrameNumbers numbers;
  numbers.Number(65534);
  EXPECT_EQ(numbers.Number(65536), 2);
  EXPECT_EQ(numbers.Number(uint64_t{1} << 40), (int64_t{1} << 40) - 65534);
}

TEST(FrameNumbersTest, AnIdBeyondAllNumbersIsDamagedAndTheNextOnesCount) {
  FrameNumbers numbers;
  EXPECT_EQ(numbers.Number(5), 0);
  EXPECT_EQ(numbers.Number(std::numeric_limits<uint64_t>::max()), std::nullopt);
  EXPECT_EQ(numbers.Number(6), 1);
  EXPECT_EQ(numbers.Number((uint64_t{1} << 62) + 6), (int64_t{1} << 62) + 1);
  EXPECT_EQ(numbers.Number((uint64_t{1} << 63) + 6), std::nullopt) << "the sum has 64 bits";
}

TEST(SourceKindsTest, EachSaysWhy) {
  const auto kinds = SourceKinds();
  ASSERT_EQ(kinds.size(), 5u);
  EXPECT_EQ(kinds.back().name, "camera");
  for (const auto& kind : kinds) EXPECT_FALSE(kind.reason.empty()) << kind.name;
}

}  // namespace
}  // namespace octavo::engine
