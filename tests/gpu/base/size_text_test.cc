#include "gpu/base/size_text.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace octavo {
namespace {

TEST(SizeText, HasTheLargestUnitThatKeepsItAtOneOrAbove) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(1023), "1023 B");
  EXPECT_EQ(SizeText(1024), "1.0 KiB");
  EXPECT_EQ(SizeText(int64_t{3} << 19), "1.5 MiB");
  EXPECT_EQ(SizeText(int64_t{1} << 30), "1.0 GiB");
  EXPECT_EQ(SizeText(int64_t{1719411109632}), "1.6 TiB");
  EXPECT_EQ(SizeText(int64_t{1} << 51), "2048.0 TiB") << "the last unit";
}

}  // namespace
}  // namespace octavo
