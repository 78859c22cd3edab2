#include "server/job/display_range.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/support/seed.h"

namespace octavo::job {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                kInfinity = std::numeric_limits<float>::infinity();

/// By sorting.
void ExpectRange(const std::vector<float>& values) {
  const DisplayRange found = DisplayRangeOf(values.data(), std::ssize(values));
  std::vector<float> sorted;
  for (const float value : values) {
    if (std::isfinite(value)) sorted.push_back(value);
  }
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(found.looked_at, std::ssize(values));
  EXPECT_EQ(found.not_finite, std::ssize(values) - std::ssize(sorted));
  const auto at = [&](double part) {
    if (sorted.empty()) return 0.0;
    return static_cast<double>(
        sorted[static_cast<size_t>(std::lround(part * static_cast<double>(sorted.size() - 1)))]);
  };
  EXPECT_EQ(found.lo, at(0.002));
  EXPECT_EQ(found.hi, at(0.998));
}

TEST(DisplayRangeTest, IsThatOfTheSortedValues) {
  std::mt19937 random(octavo::testing::FreshSeed());
  std::normal_distribution<float> normal(-3, 20);
  std::uniform_int_distribution<int> kind(0, 99);
  for (const int64_t count : {1, 2, 3, 10, 499, 500, 501, 1000, 70'000, 524'288, 1'500'001}) {
    for (const int special : {0, 1, 40, 100}) {  // per cent
      SCOPED_TRACE(absl::StrCat(count, " values, ", special, " % of them special"));
      const float specials[] = {kNaN,  kInfinity, -kInfinity, 0.0F,
                                -0.0F, 1e-42F,    -1e-42F,    std::numeric_limits<float>::max()};
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i)
        values.push_back(kind(random) < special ? specials[kind(random) % 8] : normal(random));
      ExpectRange(values);
    }
  }
}

TEST(DisplayRangeTest, OfEqualValuesAndOfNone) {
  ExpectRange({});
  ExpectRange({kNaN, kInfinity, -kInfinity});
  ExpectRange(std::vector<float>(1'000'000, -2.5F));
  std::vector<float> steps(600'000, 0.0F);  // nearly all in one bin
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = 1.0F + static_cast<float>(i % 7) * 1e-6F;
  ExpectRange(steps);
}

}  // namespace
}  // namespace octavo::job
