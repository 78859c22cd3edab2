#include "server/buffer/box_walk.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;

TEST(BoxWalkTest, ThePiecesOfABoxFollowEachOtherInCOrder) {
  for (const int64_t most : {1, 2, 8, 11, 12, 24, 30, 48, 1000}) {
    ArrayType type{.scalar = Scalar::kU16, .lanes = 1, .dims = {4, 5, 6}};
    ASSERT_OK_AND_ASSIGN(BoxWalk walk,
                         BoxWalk::Of({.start = {1, 1, 2}, .count = {3, 2, 4}}, 2, &type));
    EXPECT_EQ(type.dims, (std::vector<int64_t>{3, 2, 4}));
    for (size_t source = 0; source < 2; ++source) {
      std::vector<int64_t> seen, wanted;
      for (int64_t y = 1; y < 4; ++y) {
        for (int64_t x = 1; x < 3; ++x) {
          for (int64_t z = 2; z < 6; ++z) wanted.push_back((y * 5 + x) * 6 + z);
        }
      }
      while (!walk.done() && walk.source == source) {
        const Box3 piece = walk.Next(most);
        const int64_t bytes = piece.count[0] * piece.count[1] * piece.count[2] * 2;
        EXPECT_LE(bytes, std::max<int64_t>(most, 2));
        EXPECT_GT(bytes, 0);
        for (int64_t y = 0; y < piece.count[0]; ++y) {
          for (int64_t x = 0; x < piece.count[1]; ++x) {
            for (int64_t z = 0; z < piece.count[2]; ++z)
              seen.push_back(((y + piece.start[0]) * 5 + x + piece.start[1]) * 6 + z +
                             piece.start[2]);
          }
        }
      }
      EXPECT_EQ(seen, wanted) << "source " << source << ", at most " << most;
    }
    EXPECT_TRUE(walk.done());
  }
}

TEST(BoxWalkTest, AnArrayOfOneAxisIsOneRow) {
  ArrayType type{.scalar = Scalar::kF32, .lanes = 2, .dims = {10}};
  ASSERT_OK_AND_ASSIGN(BoxWalk walk, BoxWalk::Of({}, 1, &type));
  EXPECT_EQ(walk.element_bytes, 8);
  const Box3 first = walk.Next(50), second = walk.Next(50);
  EXPECT_EQ(first.count[2], 6);
  EXPECT_EQ(second.start[2], 6);
  EXPECT_EQ(second.count[2], 4);
  EXPECT_TRUE(walk.done());
}

TEST(BoxWalkTest, ABoxOutsideTheArrayIsRefused) {
  const auto refusal = [](BufferReadSpec spec) {
    ArrayType type{.scalar = Scalar::kU8, .lanes = 1, .dims = {4, 5}};
    return std::string(Name(ReasonOrCode(BoxWalk::Of(spec, 1, &type).status())));
  };
  EXPECT_EQ(refusal({.start = {1}}), "BAD_FIELD");
  EXPECT_EQ(refusal({.start = {4, 0}}), "BAD_RANGE");
  EXPECT_EQ(refusal({.count = {4, 6}}), "BAD_RANGE");
  EXPECT_EQ(refusal({.start = {1, 0}, .count = {std::numeric_limits<int64_t>::max(), 1}}),
            "BAD_RANGE");
  EXPECT_EQ(refusal({.count = {-1, 1}}), "BAD_RANGE");
  EXPECT_EQ(refusal({.count = {0, 1}}), "") << "0: to the end";
  EXPECT_EQ(refusal({.start = {3, 4}, .count = {1, 1}}), "");
}

}  // namespace
}  // namespace octavo::engine
