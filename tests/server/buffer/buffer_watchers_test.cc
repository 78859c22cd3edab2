// Watchers of buffers and the requests for buffers, each without a store.

#include "server/buffer/buffer_watchers.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/buffer/buffer_requests.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

BufferStatus At(const std::string& name, uint64_t revision) {
  BufferStatus status;
  status.name = name;
  status.revision = revision;
  return status;
}

class BufferWatchersTest : public ::testing::Test {
 protected:
  using Event = std::pair<ChangeKind, uint64_t>;
  BufferWatchers::Told Log() {
    return [this](ChangeKind kind, const BufferStatus& status, const std::string&) {
      told_.emplace_back(kind, status.revision);
    };
  }
  static std::vector<BufferStatus> None() { return {}; }

  BufferWatchers watchers_;
  std::vector<Event> told_;
};

TEST_F(BufferWatchersTest, TheExistingBuffersComeBeforeChangesMadeMeanwhile) {
  const auto watch = watchers_.Watch({}, Log(), [&] {
    // Other threads make changes while the buffers are listed: one before, one after that.
    watchers_.Tell(ChangeKind::kChanged, At("buffers/a", 3), "", "");
    watchers_.Tell(ChangeKind::kChanged, At("buffers/a", 5), "", "");
    EXPECT_TRUE(told_.empty());
    return std::vector<BufferStatus>{At("buffers/a", 4), At("buffers/b", 1)};
  });
  EXPECT_EQ(told_,
            (std::vector<Event>{
                {ChangeKind::kExists, 4}, {ChangeKind::kExists, 1}, {ChangeKind::kChanged, 5}}));
}

TEST_F(BufferWatchersTest, AnOlderStateIsNotToldAfterANewerOne) {
  const auto watch = watchers_.Watch({}, Log(), None);
  watchers_.Tell(ChangeKind::kChanged, At("buffers/a", 2), "", "");
  watchers_.Tell(ChangeKind::kCreated, At("buffers/a", 1), "", "");
  watchers_.Tell(ChangeKind::kGone, At("buffers/a", 3), "", "");
  watchers_.Tell(ChangeKind::kChanged, At("buffers/a", 4), "", "");
  EXPECT_EQ(told_, (std::vector<Event>{{ChangeKind::kCreated, 2}, {ChangeKind::kGone, 3}}))
      << "a change that overtakes the creation is the creation";
}

TEST_F(BufferWatchersTest, ACallbackMayMakeChangesItself) {
  const auto watch = watchers_.Watch(
      {},
      [&](ChangeKind kind, const BufferStatus& status, const std::string&) {
        told_.emplace_back(kind, status.revision);
        if (status.revision < 3)
          watchers_.Tell(ChangeKind::kChanged, At("buffers/a", status.revision + 1), "", "");
      },
      None);
  watchers_.Tell(ChangeKind::kCreated, At("buffers/a", 1), "", "");
  EXPECT_EQ(told_.size(), 3u);
}

TEST_F(BufferWatchersTest, APrivateBufferIsToldToItsOwner) {
  const auto other = watchers_.Watch({.client = "other", .key = ""}, Log(), None);
  std::vector<uint64_t> owners;
  const auto owner = watchers_.Watch(
      {.client = "owner", .key = "secret"},
      [&](ChangeKind, const BufferStatus& status, const std::string&) {
        owners.push_back(status.revision);
      },
      None);
  BufferStatus mine = At("buffers/a", 1);
  mine.is_private = true;
  watchers_.Tell(ChangeKind::kCreated, mine, "secret", "");
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(owners.size(), 1u);
}

TEST_F(BufferWatchersTest, AWatcherThatThrowsHearsOfTheNextChange) {
  bool throws = true;
  const auto watch = watchers_.Watch(
      {},
      [&](ChangeKind kind, const BufferStatus& status, const std::string&) {
        if (std::exchange(throws, false)) throw std::runtime_error("by the test");
        told_.emplace_back(kind, status.revision);
      },
      None);
  EXPECT_THROW(watchers_.Tell(ChangeKind::kCreated, At("buffers/a", 1), "", ""),
               std::runtime_error);
  watchers_.Tell(ChangeKind::kChanged, At("buffers/a", 2), "", "");
  EXPECT_EQ(told_, (std::vector<Event>{{ChangeKind::kChanged, 2}}));
}

TEST_F(BufferWatchersTest, WithoutItsHandleAWatcherHearsNothing) {
  auto watch = watchers_.Watch({}, Log(), None);
  watch = nullptr;
  watchers_.Tell(ChangeKind::kCreated, At("buffers/a", 1), "", "");
  EXPECT_TRUE(told_.empty());
}

TEST(BufferRequestsTest, ARetryGetsTheNameAndADrainRefusesNewWork) {
  BufferRequests requests;
  ASSERT_OK_AND_ASSIGN(std::string name, requests.Begin("one", "digest"));
  EXPECT_EQ(name, "");
  EXPECT_THAT(requests.Begin("one", "digest"), IsError(absl::StatusCode::kUnavailable, ""));
  requests.End("one", "buffers/a");
  EXPECT_EQ(requests.Begin("one", "digest").value(), "buffers/a");
  EXPECT_THAT(requests.CheckOpen(), IsOk());
  requests.BeginDrain();
  EXPECT_THAT(requests.CheckOpen(), IsError(absl::StatusCode::kUnavailable, "draining"));
  EXPECT_EQ(requests.Begin("one", "digest").value(), "buffers/a") << "a retry is no new work";
}

}  // namespace
}  // namespace octavo::engine
