#include "server/base/array_box.h"

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/status_matchers.h"

namespace octavo::base {
namespace {

using octavo::testing::IsError;
using Numbers = std::vector<int64_t>;

TEST(ArrayBoxTest, WhatIsNotGivenReachesToTheEnds) {
  const auto box = [](const Numbers& start, const Numbers& count) {
    const auto resolved = ResolveBox(start, count, {4, 5, 6});
    return resolved.ok() ? std::pair(resolved->start, resolved->count)
                         : std::pair(Numbers{}, Numbers{});
  };
  EXPECT_EQ(box({}, {}), std::pair(Numbers({0, 0, 0}), Numbers({4, 5, 6})));
  EXPECT_EQ(box({3, 0, 2}, {}), std::pair(Numbers({3, 0, 2}), Numbers({1, 5, 4})));
  EXPECT_EQ(box({}, {2, 0, 6}), std::pair(Numbers({0, 0, 0}), Numbers({2, 5, 6})));
  EXPECT_EQ(box({1, 4, 5}, {0, 1, 0}), std::pair(Numbers({1, 4, 5}), Numbers({3, 1, 1})));
}

TEST(ArrayBoxTest, AWrongNumberOfValuesIsAnotherErrorThanABoxOutside) {
  for (const size_t values : {1, 2, 4}) {
    EXPECT_THAT(ResolveBox(Numbers(values, 0), {}, {4, 5, 6}),
                IsError(absl::StatusCode::kInvalidArgument, "start: has"));
    EXPECT_THAT(ResolveBox({}, Numbers(values, 1), {4, 5, 6}),
                IsError(absl::StatusCode::kInvalidArgument, "count: has"));
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto outside = [](const Numbers& start, const Numbers& count, const char* field,
                          const char* message) {
    const absl::Status status = ResolveBox(start, count, {4, 5}).status();
    EXPECT_THAT(status, IsError(absl::StatusCode::kOutOfRange, message));
    EXPECT_EQ(InfoOf(status).reason, Reason::kBadRange);
    EXPECT_EQ(InfoOf(status).field, field);
  };
  outside({4, 0}, {}, "start", "start: [0] is 4; allowed 0 to 3");
  outside({0, -1}, {}, "start", "start: [1] is -1; allowed 0 to 4");
  outside({kMost, 0}, {2, 1}, "start", "allowed 0 to 3");
  outside({3, 0}, {2, 1}, "count", "count: [0] is 2; allowed 0 to 1");
  outside({}, {1, -1}, "count", "count: [1] is -1; allowed 0 to 5");
  outside({1, 1}, {1, kMost}, "count", "allowed 0 to 4");
}

}  // namespace
}  // namespace octavo::base
