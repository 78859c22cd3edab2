#include "server/base/request_ids.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;

TEST(RequestIdsTest, ARetryGetsWhatTheFirstOneMade) {
  RequestIds ids("scan");
  EXPECT_EQ(ids.Begin("a", "body").value(), "");
  EXPECT_THAT(ids.Begin("a", "body"), IsError(absl::StatusCode::kUnavailable, "still at work"));
  EXPECT_THAT(ids.Begin("a", "other"), IsError(absl::StatusCode::kAlreadyExists, "another body"));
  ids.End("a", "scans/1");
  EXPECT_EQ(ids.Begin("a", "body").value(), "scans/1");
  const absl::Status other = ids.Begin("a", "other").status();
  EXPECT_THAT(other, IsError(absl::StatusCode::kAlreadyExists, "another body (scans/1)"));
  EXPECT_EQ(InfoOf(other).reason, Reason::kIdempotencyMismatch);
  EXPECT_EQ(InfoOf(other).numbers,
            (std::vector<std::pair<std::string, std::string>>{{"scan", "scans/1"}}));
}

TEST(RequestIdsTest, AnIdIsFreeAgainWhenItsRequestFailed) {
  RequestIds ids;
  EXPECT_EQ(ids.Begin("a", "body").value(), "");
  ids.End("a", "");
  EXPECT_EQ(ids.Begin("a", "other").value(), "");
}

TEST(RequestIdsTest, WithoutAnIdEveryRequestIsTheFirst) {
  RequestIds ids;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ids.Begin("", "body").value(), "");
    ids.End("", "scans/1");
  }
}

TEST(RequestIdsTest, TheOldestAreForgotten) {
  RequestIds ids;
  for (size_t i = 0; i <= RequestIds::kMost; ++i) {
    ASSERT_EQ(ids.Begin(absl::StrCat(i), "body").value(), "");
    ids.End(absl::StrCat(i), absl::StrCat("scans/", i));
  }
  EXPECT_EQ(ids.Begin("1", "body").value(), "scans/1");
  EXPECT_EQ(ids.Begin("0", "another body").value(), "");
}

}  // namespace
}  // namespace octavo::engine
