// Watchers of buffers and the requests for buffers, each without a store.

#include "server/buffer/buffer_watchers.h"

#include <future>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
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

using StatusPtr = std::shared_ptr<const BufferStatus>;

class BufferWatchersTest : public ::testing::Test {
 protected:
  using Event = std::pair<ChangeKind, uint64_t>;
  BufferWatchers::Told Log() {
    return [this](ChangeKind kind, const StatusPtr& status, const std::string&) {
      told_.emplace_back(kind, status->revision);
    };
  }
  static std::vector<BufferStatus> None() { return {}; }
  void Tell(ChangeKind kind, const BufferStatus& status, const std::string& key = "") {
    watchers_.Tell(kind, status, key, "");
    watchers_.Flush();
  }

  BufferWatchers watchers_;
  std::vector<Event> told_;
};

TEST_F(BufferWatchersTest, TheExistingBuffersComeBeforeChangesMadeMeanwhile) {
  const auto watch = watchers_.Watch({}, Log(), [&] {
    // Other threads make changes while the buffers are listed: one before, one after that.
    Tell(ChangeKind::kChanged, At("buffers/a", 3));
    Tell(ChangeKind::kChanged, At("buffers/a", 5));
    EXPECT_TRUE(told_.empty());
    return std::vector<BufferStatus>{At("buffers/a", 4), At("buffers/b", 1)};
  });
  EXPECT_EQ(told_,
            (std::vector<Event>{
                {ChangeKind::kExists, 4}, {ChangeKind::kExists, 1}, {ChangeKind::kChanged, 5}}));
}

TEST_F(BufferWatchersTest, AnOlderStateIsNotToldAfterANewerOne) {
  const auto watch = watchers_.Watch({}, Log(), None);
  Tell(ChangeKind::kChanged, At("buffers/a", 2));
  Tell(ChangeKind::kCreated, At("buffers/a", 1));
  Tell(ChangeKind::kGone, At("buffers/a", 3));
  Tell(ChangeKind::kChanged, At("buffers/a", 4));
  EXPECT_EQ(told_, (std::vector<Event>{{ChangeKind::kCreated, 2}, {ChangeKind::kGone, 3}}))
      << "a change that overtakes the creation is the creation";
}

TEST_F(BufferWatchersTest, ACallbackMayMakeChangesItself) {
  const auto watch = watchers_.Watch(
      {},
      [&](ChangeKind kind, const StatusPtr& status, const std::string&) {
        told_.emplace_back(kind, status->revision);
        if (status->revision < 3)
          watchers_.Tell(ChangeKind::kChanged, At("buffers/a", status->revision + 1), "", "");
      },
      None);
  Tell(ChangeKind::kCreated, At("buffers/a", 1));
  EXPECT_EQ(told_.size(), 3u);
}

TEST_F(BufferWatchersTest, APrivateBufferIsToldToItsOwner) {
  const auto other = watchers_.Watch({.client = "other", .key = ""}, Log(), None);
  std::vector<uint64_t> owners;
  const auto owner = watchers_.Watch(
      {.client = "owner", .key = "secret"},
      [&](ChangeKind, const StatusPtr& status, const std::string&) {
        owners.push_back(status->revision);
      },
      None);
  BufferStatus mine = At("buffers/a", 1);
  mine.is_private = true;
  Tell(ChangeKind::kCreated, mine, "secret");
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(owners.size(), 1u);
}

TEST_F(BufferWatchersTest, AWatcherThatThrowsHearsOfTheNextChange) {
  bool throws = true;
  const auto watch = watchers_.Watch(
      {},
      [&](ChangeKind kind, const StatusPtr& status, const std::string&) {
        if (std::exchange(throws, false)) throw std::runtime_error("by the test");
        told_.emplace_back(kind, status->revision);
      },
      None);
  Tell(ChangeKind::kCreated, At("buffers/a", 1));
  Tell(ChangeKind::kChanged, At("buffers/a", 2));
  EXPECT_EQ(told_, (std::vector<Event>{{ChangeKind::kChanged, 2}}));
}

// However slow watchers are, the thread that makes changes goes on, and what waits is bounded.
TEST_F(BufferWatchersTest, WhoMakesChangesTellsNobody) {
  std::promise<void> reached, open;
  const std::shared_future<void> opened = open.get_future().share();
  std::set<std::thread::id> threads;
  std::map<std::string, std::pair<ChangeKind, uint64_t>> last;
  size_t told = 0;
  const auto watch = watchers_.Watch(
      {},
      [&](ChangeKind kind, const StatusPtr& status, const std::string&) {
        if (told++ == 0) {
          reached.set_value();
          opened.wait();
        }
        threads.insert(std::this_thread::get_id());
        last[status->name] = {kind, status->revision};
      },
      None);
  watchers_.Tell(ChangeKind::kCreated, At("buffers/first", 1), "", "");
  reached.get_future().wait();
  constexpr uint64_t kBuffers = 100, kChanges = 1000;
  for (uint64_t i = 1; i <= kChanges; ++i) {
    for (uint64_t b = 0; b < kBuffers; ++b)
      watchers_.Tell(i < kChanges || b % 2 == 0 ? ChangeKind::kChanged : ChangeKind::kGone,
                     At("buffers/" + std::to_string(b), i), "", "");
  }
  open.set_value();
  watchers_.Flush();
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
  EXPECT_LE(told, base::ChangeWatchers<BufferStatus>::kMostSingle + kBuffers + 1);
  for (uint64_t b = 0; b < kBuffers; ++b) {
    const auto& [kind, revision] = last["buffers/" + std::to_string(b)];
    EXPECT_EQ(revision, kChanges);
    EXPECT_EQ(kind == ChangeKind::kGone, b % 2 == 1);
  }
}

TEST_F(BufferWatchersTest, AllHearOfAChangeWithOneObject) {
  std::vector<StatusPtr> told;
  const auto log = [&](ChangeKind, const StatusPtr& status, const std::string&) {
    told.push_back(status);
  };
  const auto one = watchers_.Watch({}, log, None), other = watchers_.Watch({}, log, None);
  Tell(ChangeKind::kCreated, At("buffers/a", 1));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0], told[1]);
}

TEST_F(BufferWatchersTest, WithoutItsHandleAWatcherHearsNothing) {
  auto watch = watchers_.Watch({}, Log(), None);
  watch = nullptr;
  Tell(ChangeKind::kCreated, At("buffers/a", 1));
  EXPECT_TRUE(told_.empty());
}

TEST(BufferRequestsTest, ARetryGetsTheNameAndADrainRefusesNewWork) {
  BufferRequests requests;
  ASSERT_OK_AND_ASSIGN(std::string name, requests.Begin("one", "digest", "ada"));
  EXPECT_EQ(name, "");
  EXPECT_THAT(requests.Begin("one", "digest", "ada"), IsError(absl::StatusCode::kUnavailable, ""));
  requests.End("one", "buffers/a");
  EXPECT_EQ(requests.Begin("one", "digest", "ada").value(), "buffers/a");
  EXPECT_THAT(requests.CheckOpen(), IsOk());
  requests.BeginDrain();
  EXPECT_THAT(requests.CheckOpen(), IsError(absl::StatusCode::kUnavailable, "draining"));
  EXPECT_EQ(requests.Begin("one", "digest", "ada").value(), "buffers/a")
      << "a retry is no new work";
}

}  // namespace
}  // namespace octavo::engine
