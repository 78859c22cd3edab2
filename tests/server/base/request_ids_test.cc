#include "server/base/request_ids.h"

#include <malloc.h>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;

int64_t HeapBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

TEST(RequestIdsTest, ARetryGetsWhatTheFirstOneMade) {
  RequestIds ids("scan");
  EXPECT_EQ(ids.Begin("a", "body", "ada").value(), "");
  EXPECT_THAT(ids.Begin("a", "body", "ada"),
              IsError(absl::StatusCode::kUnavailable, "has not answered the first call"));
  EXPECT_THAT(ids.Begin("a", "other", "ada"),
              IsError(absl::StatusCode::kAlreadyExists, "another body"));
  ids.End("a", "scans/1");
  EXPECT_EQ(ids.Begin("a", "body", "ada").value(), "scans/1");
  const absl::Status other = ids.Begin("a", "other", "ada").status();
  EXPECT_THAT(other, IsError(absl::StatusCode::kAlreadyExists, "another body (scans/1)"));
  EXPECT_EQ(InfoOf(other).reason, Reason::kIdempotencyMismatch);
  EXPECT_EQ(InfoOf(other).numbers,
            (std::vector<std::pair<std::string, std::string>>{{"scan", "scans/1"}}));
}

TEST(RequestIdsTest, AnIdIsFreeAgainWhenItsRequestFailed) {
  RequestIds ids;
  EXPECT_EQ(ids.Begin("a", "body", "ada").value(), "");
  ids.End("a", "");
  EXPECT_EQ(ids.Begin("a", "other", "ada").value(), "");
}

TEST(RequestIdsTest, WithoutAnIdEveryRequestIsTheFirst) {
  RequestIds ids;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ids.Begin("", "body", "ada").value(), "");
    ids.End("", "scans/1");
  }
}

TEST(RequestIdsTest, LargeBodiesAreToldApartAndNotKept) {
  RequestIds ids;
  std::string body(4 << 20, 'x');
  const int64_t before = HeapBytes();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(ids.Begin(absl::StrCat(i), body, "ada").value(), "");
    ids.End(absl::StrCat(i), "buffers/1");
  }
  EXPECT_LT(HeapBytes() - before, 1 << 20);
  EXPECT_EQ(ids.Begin("7", body, "ada").value(), "buffers/1");
  std::swap(body.front(), body[1]);
  body.back() = 'y';  // as long, and different in its last byte alone
  EXPECT_THAT(ids.Begin("7", body, "ada"),
              IsError(absl::StatusCode::kAlreadyExists, "another body"));
  body.back() = 'x';
  body[1000] = 'y';
  std::swap(body[1000], body[2000]);  // the sum of the bytes is that of the one before
  EXPECT_THAT(ids.Begin("7", body, "ada"),
              IsError(absl::StatusCode::kAlreadyExists, "another body"));
}

TEST(RequestIdsTest, TheOldestAreForgotten) {
  RequestIds ids;
  for (size_t i = 0; i <= RequestIds::kMost; ++i) {
    ASSERT_EQ(ids.Begin(absl::StrCat(i), "body", "ada").value(), "");
    ids.End(absl::StrCat(i), absl::StrCat("scans/", i));
  }
  EXPECT_EQ(ids.Begin("1", "body", "ada").value(), "scans/1");
  EXPECT_EQ(ids.Begin("0", "another body", "ada").value(), "");
}

TEST(RequestIdsTest, NobodyPushesOutThoseOfOthers) {
  RequestIds ids;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ids.Begin(absl::StrCat("ada's", i), "body", "ada").value(), "");
    ids.End(absl::StrCat("ada's", i), absl::StrCat("buffers/ada", i));
  }
  for (size_t i = 0; i < RequestIds::kMost + 100; ++i) {
    ASSERT_EQ(ids.Begin(absl::StrCat(i), "body", "bob").value(), "");
    ids.End(absl::StrCat(i), absl::StrCat("buffers/", i));
  }
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(ids.Begin(absl::StrCat("ada's", i), "body", "ada").value(),
              absl::StrCat("buffers/ada", i));
  EXPECT_EQ(ids.Begin("102", "body", "bob").value(), "")
      << "the table has forgotten bob's oldest requests";
  EXPECT_EQ(ids.Begin("5000", "body", "bob").value(), "buffers/5000");
}

}  // namespace
}  // namespace octavo::engine
