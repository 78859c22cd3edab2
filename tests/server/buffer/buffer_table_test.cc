// The table of buffers and the reasons for their ends.

#include "server/buffer/buffer_table.h"

#include <string>

#include "server/buffer/tombstones.h"
#include "tests/server/buffer/buffer_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class BufferTableTest : public testing::BufferPartsTest {};

const Caller kAnybody{.client = "anybody", .key = ""};

TEST_F(BufferTableTest, APrivateBufferIsFoundByItsOwnerAndByTheServer) {
  const BufferPtr buffer = Add("buffers/a", 16);
  buffer->status.is_private = true;
  buffer->key = "secret";
  EXPECT_EQ(ReasonOf(table_->Get("buffers/a", kAnybody)), "NOT_OWNER");
  EXPECT_TRUE(table_->List(kAnybody).empty());
  EXPECT_THAT(table_->Get("buffers/a", {.client = "owner", .key = "secret"}), IsOk());
  MutexLock lock(table_->mutex());
  EXPECT_EQ(table_->Find("buffers/a"), buffer);
  EXPECT_EQ(table_->Find("buffers/b"), nullptr);
}

TEST_F(BufferTableTest, APrivateBufferIsSeenWithItsKeyAloneAlsoWhenItIsGone) {
  const BufferPtr buffer = Add("buffers/a", 16);
  Add("buffers/b", 16);
  buffer->status.is_private = true;
  buffer->key = "secret";
  const Caller owner{.client = "owner", .key = "secret"};
  for (const bool gone : {false, true}) {
    if (gone) {
      MutexLock lock(table_->mutex());
      table_->Remove(table_->Find("buffers/a"), "expired", "by a test");
      clock_.Advance(1e4);
      table_->Purge(table_->Now().monotonic_ns);
    }
    EXPECT_FALSE(table_->MaySee("buffers/a", kAnybody));
    EXPECT_FALSE(table_->MaySee("buffers/a", {.client = "owner", .key = "Secret"}));
    EXPECT_TRUE(table_->MaySee("buffers/a", owner));
    for (const char* const other : {"buffers/b", "buffers/unknown", "volumes/a", "jobs/a", ""})
      EXPECT_TRUE(table_->MaySee(other, kAnybody)) << other;
  }
}

TEST(Tombstones, RememberTheKeysOfTheLastPrivateOnes) {
  Tombstones tombstones;
  for (size_t i = 0; i <= Tombstones::kMostPrivate; ++i)
    tombstones.AddPrivate("buffers/" + std::to_string(i), "key");
  EXPECT_EQ(tombstones.KeyOf("buffers/0"), nullptr);
  ASSERT_NE(tombstones.KeyOf("buffers/1"), nullptr);
  EXPECT_EQ(*tombstones.KeyOf("buffers/1"), "key");
}

TEST_F(BufferTableTest, ABufferThatIsRemovedLeavesItsReason) {
  Add("buffers/a", 16);
  Add("buffers/b", 16);
  {
    MutexLock lock(table_->mutex());
    table_->Remove(table_->Find("buffers/a"), "expired", "by a test");
    EXPECT_EQ(table_->Buffers().size(), 1u);
  }
  EXPECT_THAT(table_->Get("buffers/a", kAnybody),
              IsError(absl::StatusCode::kNotFound, "buffers/a is gone: by a test"));
  EXPECT_EQ(ReasonOf(table_->Get("volumes/a", kAnybody)), "SEALED");
  const BufferTotals totals = table_->Count();
  EXPECT_EQ(totals.buffers, 1);
  EXPECT_EQ(totals.bytes, 32);
  EXPECT_EQ(totals.gone.at("expired"), 1);
  EXPECT_EQ(totals.bytes_on.at(1), 16);
}

TEST_F(BufferTableTest, AStatusTellsTheGravestState) {
  const BufferPtr buffer = Add("buffers/a", 16);
  EXPECT_TRUE(table_->Get("buffers/a", kAnybody)->coherent);
  buffer->replicas[0]->state = BufferState::kUninitialized;
  EXPECT_EQ(table_->Get("buffers/a", kAnybody)->state, BufferState::kUninitialized);
  buffer->replicas[1]->state = BufferState::kPartial;
  const BufferStatus status = table_->Get("buffers/a", kAnybody).value();
  EXPECT_EQ(status.state, BufferState::kPartial);
  EXPECT_FALSE(status.coherent);
  MutexLock lock(table_->mutex());
  EXPECT_THAT(table_->CheckReadable(*buffer, 0, true), IsOk());
  EXPECT_EQ(ReasonOf(table_->CheckReadable(*buffer, 0, false)), "UNINITIALIZED");
  EXPECT_EQ(ReasonOf(table_->CheckReadable(*buffer, 1, true)), "PARTIAL");
}

TEST_F(BufferTableTest, AChangeCountsARevisionAndRenewsTheTimeToLive) {
  const BufferPtr buffer = Add("buffers/a", 16);
  buffer->ttl_seconds = 10;
  buffer->warned = true;
  clock_.Advance(5);
  {
    MutexLock lock(table_->mutex());
    table_->Touch(*buffer);
    const uint64_t first = table_->NextSequence();
    EXPECT_EQ(table_->NextSequence(), first + 1);
  }
  EXPECT_FALSE(buffer->warned);
  clock_.Advance(4);
  const BufferStatus status = table_->Get("buffers/a", kAnybody).value();
  EXPECT_NEAR(status.expires_seconds, 6, 1e-6);
  EXPECT_EQ(status.etag, "1");
}

TEST_F(BufferTableTest, WorkThatFailsLosesItsReplica) {
  const BufferPtr buffer = Add("buffers/a", 16);
  table_->LostUnlessOk(buffer->replicas[0])(absl::OkStatus());
  table_->LostUnlessOk(buffer->replicas[1])(absl::InternalError("by the test"));
  EXPECT_EQ(buffer->replicas[0]->state, BufferState::kReady);
  EXPECT_EQ(buffer->replicas[1]->state, BufferState::kLost);
}

TEST_F(BufferTableTest, RefusalsAreCountedByReason) {
  table_->CountRefusal(absl::OkStatus());
  table_->CountRefusal(absl::AbortedError("by the test"));
  table_->CountRefusal(table_->Get("buffers/none", kAnybody).status());
  const BufferTotals totals = table_->Count();
  EXPECT_EQ(totals.refusals.size(), 2u);
  EXPECT_EQ(totals.refusals.at("NO_BUFFER"), 1);
}

TEST(TombstonesTest, AreForgottenInTheirOrder) {
  Tombstones tombstones;
  tombstones.Add("buffers/a", "first", 0);
  tombstones.Add("buffers/b", "second", 1000);
  tombstones.Purge(Tombstones::kKeptNs);
  ASSERT_NE(tombstones.Find("buffers/a"), nullptr);
  EXPECT_EQ(*tombstones.Find("buffers/a"), "first");
  tombstones.Purge(Tombstones::kKeptNs + 1);
  EXPECT_EQ(tombstones.Find("buffers/a"), nullptr);
  EXPECT_NE(tombstones.Find("buffers/b"), nullptr);
  for (size_t i = 0; i < Tombstones::kMost; ++i)
    tombstones.Add("buffers/" + std::to_string(i), "", 2000);
  tombstones.Purge(2000);
  EXPECT_EQ(tombstones.Find("buffers/b"), nullptr) << "too many";
  EXPECT_NE(tombstones.Find("buffers/0"), nullptr);
}

}  // namespace
}  // namespace octavo::engine
