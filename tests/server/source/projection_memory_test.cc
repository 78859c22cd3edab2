// Who may have how much of the memory for pushed projections.
#include "server/source/projection_memory.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/source/projection_ring.h"
#include "server/source/push_projections.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace octavo::source {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
constexpr int64_t kLimit = 1 << 20;

class ProjectionMemoryTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<char>> Take(const std::string& payer, int64_t bytes) {
    return memory_.Take(
        {.bytes = bytes, .payer = payer, .field = "push.frames", .what = "the frames need"});
  }
  /// The numbers of a refusal.
  static std::map<std::string, std::string> NumbersOf(const absl::Status& status) {
    const ErrorInfo info = InfoOf(status);
    EXPECT_EQ(info.reason, Reason::kHostMemory);
    return {info.numbers.begin(), info.numbers.end()};
  }

  ProjectionMemory memory_{kLimit};
};

TEST_F(ProjectionMemoryTest, WhoeverIsAloneLeavesAnEighth) {
  ASSERT_OK_AND_ASSIGN(auto first, Take("ada", kLimit / 8 * 7));
  const auto more = Take("ada", 1);
  EXPECT_THAT(more,
              IsError(kExhausted,
                      "push.frames: the frames need 1 bytes of host memory; ada holds 917504, and "
                      "one principal may hold 917504 of 1048576 for pushed projections, because "
                      "others may want some; cancel a job, or wait for one to end"));
  EXPECT_EQ(InfoOf(more.status()).field, "push.frames");
  auto numbers = NumbersOf(more.status());
  EXPECT_EQ(numbers["held"], "917504");
  EXPECT_EQ(numbers["allowed"], "917504");
  EXPECT_EQ(numbers["principal"], "ada");
  EXPECT_EQ(numbers["retryable"], "true");
  // The rest is there for others.
  EXPECT_THAT(Take("bob", kLimit / 8), IsOk());
  first = nullptr;
  EXPECT_EQ(memory_.used_bytes(), 0);
}

TEST_F(ProjectionMemoryTest, WhereOthersHaveAskedEachHasHalf) {
  ASSERT_OK_AND_ASSIGN(auto much, Take("ada", kLimit / 4 * 3));
  // A refusal counts: he wants some.
  EXPECT_THAT(Take("bob", kLimit / 2), IsError(kExhausted, "262144 are free"));
  EXPECT_THAT(Take("ada", 1),
              IsError(kExhausted, "ada holds 786432, and one principal may hold 524288 of"));
  ASSERT_OK_AND_ASSIGN(const auto little, Take("bob", kLimit / 4));
  much = nullptr;  // and now she has no more than others
  ASSERT_OK_AND_ASSIGN(const auto half, Take("ada", kLimit / 2));
  EXPECT_THAT(Take("ada", 1), IsError(kExhausted, "ada holds 524288"));
  EXPECT_THAT(Take("bob", kLimit / 4), IsOk());
}

TEST_F(ProjectionMemoryTest, WhatCanNeverFitIsSaid) {
  (void)Take("bob", 1);
  const auto refused = Take("ada", kLimit / 2 + 1);
  EXPECT_THAT(refused, IsError(kExhausted, "it can never fit: push fewer or smaller frames"));
  EXPECT_EQ(NumbersOf(refused.status())["retryable"], "false");
  EXPECT_EQ(NumbersOf(refused.status())["held"], "0");
}

TEST_F(ProjectionMemoryTest, AdminsAndTheServerHaveNoShare) {
  (void)Take("ada", 1);
  (void)Take("bob", 1);
  ASSERT_OK_AND_ASSIGN(auto all, Take("", kLimit));
  EXPECT_THAT(Take("", 1), IsError(kExhausted, "of 1048576 for pushed projections 0 are free"));
  EXPECT_EQ(memory_.Reserve(1), nullptr);
  all = nullptr;
  const auto reserved = memory_.Reserve(kLimit);
  EXPECT_NE(reserved, nullptr);
  EXPECT_THAT(Take("ada", 1), IsError(kExhausted, "0 are free"));
}

// An admin has no share, so his claim does not halve the share of the one user.
TEST_F(ProjectionMemoryTest, OnlyThoseWithAShareAreOthers) {
  (void)Take("", 1);
  (void)memory_.Reserve(1);
  EXPECT_THAT(Take("ada", kLimit / 8 * 7), IsOk());
}

// What a share is of: the frames and the ring of each job, as long as they are there.
TEST_F(ProjectionMemoryTest, FramesAndRingsOfAJobCount) {
  testing::FakeClock clock;
  (void)Take("bob", 1);
  const model::PushedProjectionsSpec spec{.rows = 64, .columns = 64, .frames = 48};
  constexpr int64_t kFrame = 64 * 64 * 2;
  ASSERT_OK_AND_ASSIGN(auto port, ProjectionPort::Create(spec, &memory_, &clock, "ada"));
  const auto ring = port->OpenRing(32);
  EXPECT_THAT(ring.status(), IsError(kExhausted, "slots: a ring of 32 frames needs"));
  EXPECT_EQ(NumbersOf(ring.status())["held"], std::to_string(48 * kFrame));
  ASSERT_THAT(port->OpenRing(8), IsOk());
  EXPECT_THAT(ProjectionPort::Create(spec, &memory_, &clock, "ada"),
              IsError(kExhausted, "push.frames: the frames need"));
  EXPECT_THAT(ProjectionPort::Create(spec, &memory_, &clock, "bob"), IsOk());
  port = nullptr;
  EXPECT_EQ(memory_.used_bytes(), 0);
  EXPECT_THAT(ProjectionPort::Create(spec, &memory_, &clock, "ada"), IsOk());
}

}  // namespace
}  // namespace octavo::source
