// What works on replicas: copies of them, their update by a write, their move to other memory, the
// order of their streams. Each is made alone, without a store.

#include <future>
#include <map>

#include "server/buffer/long_reader.h"
#include "server/buffer/replica_copies.h"
#include "server/buffer/replica_mover.h"
#include "server/buffer/replica_sync.h"
#include "server/buffer/replica_update.h"
#include "tests/server/buffer/buffer_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class ReplicaPartsTest : public testing::BufferPartsTest {
 protected:
  /// `token`: of a client's own lease; empty = one that lasts as long as the guard.
  LeaseTable::Guard LeaseOf(const std::string& name, const std::string& token = "") {
    LeaseTable::Told told;
    return leases_.Enter(name, LeaseMode::kExclusive, token, 0, "the test", &told).value();
  }
  /// Four bytes of the first replica, as an array of 2 x 3 x 4.
  absl::StatusOr<PieceToHost> CopyToHost(const BufferEntry& buffer, std::shared_ptr<void> to) {
    const int64_t shape[3] = {2, 3, 4};
    MutexLock lock(table_->mutex());
    return CopyBoxToHost(*table_, *order_,
                         {.device = 0,
                          .data = buffer.replicas[0]->memory.data(),
                          .replica = buffer.replicas[0],
                          .keep = buffer.replicas[0]},
                         shape, 1, {.start = {1, 1, 2}, .count = {1, 2, 2}}, std::move(to));
  }
  /// Keeps the thread that follows the first device busy while it lives.
  class Busy {
   public:
    explicit Busy(StreamOrdering& order) {
      order.WhenPassed(0, {},
                       [end = end_.get_future().share()](const absl::Status&) { end.wait(); });
    }
    ~Busy() { end_.set_value(); }

   private:
    std::promise<void> end_;
  };
};

TEST_F(ReplicaPartsTest, ACopyAcrossDevicesComesAfterEarlierWrites) {
  const BufferPtr buffer = Add("buffers/a", 16);
  {
    MutexLock lock(table_->mutex());
    // A slow write to the source: the copy waits for it on its own stream.
    ASSERT_OK_AND_ASSIGN(const StreamRef stream, order_->Begin(0));
    ASSERT_THAT(devices_[0]->Delay(stream, 20'000'000), IsOk());
    ASSERT_THAT(devices_[0]->Fill(stream, buffer->replicas[0]->memory.data(), 16, 0x07070707u),
                IsOk());
    ASSERT_THAT(order_->End(0, stream, {}, {&buffer->replicas[0]->order}, {}, nullptr), IsOk());
    ASSERT_THAT(ForwardReplica(*table_, *order_, buffer->replicas[0], buffer->replicas[1], 16),
                IsOk());
    EXPECT_EQ(buffer->replicas[0]->order.reads_since.size(), 1u);
    EXPECT_EQ(buffer->replicas[1]->order.last_write, buffer->replicas[0]->order.reads_since[0]);
  }
  EXPECT_EQ(BytesOf(*buffer->replicas[1], 16), std::vector<int>(16, 7));
  EXPECT_EQ(table_->Count().forwarded_bytes, 16);
}

TEST_F(ReplicaPartsTest, ABoxGoesToTheHost) {
  const BufferPtr buffer = Add("buffers/a", 24);
  ASSERT_OK_AND_ASSIGN(PieceToHost piece, CopyToHost(*buffer, frames_[0]->Get(4).value()));
  EXPECT_EQ(piece.bytes(), 4);
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<void> memory, piece.Wait());
  EXPECT_EQ(std::string(static_cast<const char*>(memory.get()), 4), "\x12\x13\x16\x17");
  EXPECT_EQ(table_->Count().read_bytes, 4);
}

TEST_F(ReplicaPartsTest, APieceThatWasWaitedForGivesItsMemoryBackAtOnce) {
  const BufferPtr buffer = Add("buffers/a", 24);
  const Busy busy(*order_);  // who follows the device does not come to this work
  auto memory = frames_[0]->Get(4).value();
  const std::weak_ptr<void> slot = memory;
  ASSERT_OK_AND_ASSIGN(PieceToHost piece, CopyToHost(*buffer, std::move(memory)));
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<void> taken, piece.Wait());
  piece = {};
  EXPECT_FALSE(slot.expired()) << "the caller has it";
  taken = nullptr;
  EXPECT_TRUE(slot.expired());
}

TEST_F(ReplicaPartsTest, APieceThatWasDroppedKeepsItsMemoryUntilTheCopyHasPassed) {
  const BufferPtr buffer = Add("buffers/a", 24);
  auto memory = frames_[0]->Get(4).value();
  const std::weak_ptr<void> slot = memory;
  {
    const Busy busy(*order_);
    { ASSERT_OK_AND_ASSIGN(const PieceToHost piece, CopyToHost(*buffer, std::move(memory))); }
    EXPECT_FALSE(slot.expired());
  }
  order_->WaitForAll();
  EXPECT_TRUE(slot.expired());
}

TEST_F(ReplicaPartsTest, AReaderOfSmallPiecesNeedsTwoSlotsWhateverElseTheDeviceDoes) {
  const BufferPtr buffer = Add("buffers/a", 64 << 10);
  frames_[0] = std::make_shared<FramePool>(devices_[0], 4 * FramePool::BlockBytes(1));  // two
  const Busy busy(*order_);
  const ReadEnvironment environment{.table = *table_, .order = *order_, .frames = frames_};
  ArrayType type = buffer->status.type;
  ASSERT_OK_AND_ASSIGN(const BoxWalk walk, BoxWalk::Of({.name = "buffers/a"}, 1, &type));
  LongReader reader(environment, {.type = type, .versions = {1}},
                    {{.device = 0,
                      .data = buffer->replicas[0]->memory.data(),
                      .replica = buffer->replicas[0],
                      .keep = buffer->replicas[0],
                      .version = 1}},
                    walk, {});
  for (int64_t at = 0; at < 64 << 10;) {
    ASSERT_OK_AND_ASSIGN(const Bytes piece, reader.Next(1000));
    ASSERT_GT(piece.size, 0);
    ASSERT_EQ(
        std::memcmp(piece.data, static_cast<const char*>(buffer->replicas[0]->memory.data()) + at,
                    static_cast<size_t>(piece.size)),
        0);
    at += piece.size;
  }
}

TEST_F(ReplicaPartsTest, AWriteOwnsItsReplicasFromBeginToEnd) {
  const BufferPtr buffer = Add("buffers/a", 16);
  const LeaseTable::Guard lease = LeaseOf("buffers/a");
  const BufferWriteSpec spec{.name = "buffers/a", .byte_offset = 4, .total_bytes = 4};
  ReplicaUpdate update(*table_, *order_, buffer, {0, 1}, spec);
  ReplicaUpdate other(*table_, *order_, buffer, {1}, spec);
  ASSERT_THAT(update.Begin(lease), IsOk());
  EXPECT_EQ(buffer->replicas[1]->state, BufferState::kWriting);
  EXPECT_EQ(ReasonOf(other.Begin(lease)), "LEASED");
  EXPECT_FALSE(other.begun());
  const auto staged = frames_[0]->Get(4).value();
  std::memset(staged.get(), 9, 4);
  ASSERT_THAT(update.Upload(staged.get(), 0, 4), IsOk());
  update.End(BufferState::kReady, {staged});
  for (const auto& replica : buffer->replicas) {
    EXPECT_EQ(replica->state, BufferState::kReady);
    EXPECT_EQ(replica->version, 2u);
  }
  EXPECT_EQ(BytesOf(*buffer->replicas[0], 9), (std::vector<int>{0, 1, 2, 3, 9, 9, 9, 9, 8}));
  EXPECT_EQ(BytesOf(*buffer->replicas[1], 9), (std::vector<int>{0, 0, 0, 0, 9, 9, 9, 9, 0}));
  EXPECT_EQ(buffer->status.sequence, 1u);
  EXPECT_EQ(table_->Count().uploaded_bytes, 4);
}

TEST_F(ReplicaPartsTest, AWriteOfAPartDoesNotCompleteAPartialReplica) {
  const BufferPtr buffer = Add("buffers/a", 16);
  const LeaseTable::Guard lease = LeaseOf("buffers/a");
  const auto staged = frames_[0]->Get(16).value();
  const auto write = [&](uint64_t bytes, BufferState end) {
    ReplicaUpdate update(*table_, *order_, buffer, {0},
                         {.name = "buffers/a", .total_bytes = bytes});
    ASSERT_THAT(update.Begin(lease), IsOk());
    ASSERT_THAT(update.Upload(staged.get(), 0, static_cast<int64_t>(bytes)), IsOk());
    update.End(end, {staged});
  };
  write(16, BufferState::kPartial);  // broken off
  EXPECT_EQ(buffer->replicas[0]->state, BufferState::kPartial);
  EXPECT_EQ(buffer->replicas[0]->version, 1u);
  write(8, BufferState::kReady);
  EXPECT_EQ(buffer->replicas[0]->state, BufferState::kPartial);
  write(16, BufferState::kReady);
  EXPECT_EQ(buffer->replicas[0]->state, BufferState::kReady);
  EXPECT_EQ(buffer->replicas[1]->version, 1u) << "no target";
}

TEST_F(ReplicaPartsTest, AWriteWhoseLeaseOrBufferIsGoneDoesNotBegin) {
  const BufferPtr buffer = Add("buffers/a", 16);
  ReplicaUpdate update(*table_, *order_, buffer, {0}, {.name = "buffers/a", .total_bytes = 16});
  {
    const Lease own =
        leases_.TryAcquire({.resource = "buffers/a", .mode = LeaseMode::kExclusive, .seconds = 5})
            .value();
    const LeaseTable::Guard lease = LeaseOf("buffers/a", own.token);
    clock_.Advance(6);
    EXPECT_EQ(ReasonOf(update.Begin(lease)), "LEASE_LOST");
  }
  const LeaseTable::Guard lease = LeaseOf("buffers/a");
  {
    MutexLock lock(table_->mutex());
    table_->Remove(buffer, "destroyed", "by the test");
  }
  EXPECT_EQ(ReasonOf(update.Begin(lease)), "NO_BUFFER");
  EXPECT_EQ(buffer->replicas[0]->state, BufferState::kReady);
}

TEST_F(ReplicaPartsTest, AReplicaMovesWithItsBytesUnlessItIsWritten) {
  const BufferPtr buffer = Add("buffers/a", 16);
  const auto old = buffer->replicas[0];
  old->version = 7;
  ReplicaMover mover(*table_, turns_, *order_, &ledger_);
  const ExportStore::Overdue what{.of = "buffers/a", .replica = 0, .charge = old->charge};
  old->state = BufferState::kWriting;
  EXPECT_EQ(ReasonOf(mover.Relocate(what)), "LEASED");
  old->state = BufferState::kReady;
  ASSERT_THAT(mover.Relocate(what), IsOk());
  EXPECT_NE(buffer->replicas[0], old);
  EXPECT_EQ(buffer->replicas[0]->version, 7u);
  EXPECT_EQ(BytesOf(*buffer->replicas[0], 4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_THAT(mover.Relocate(what), IsError(absl::StatusCode::kNotFound, "no such memory"));
}

TEST_F(ReplicaPartsTest, SyncTakesTheVersionOfItsSourceAndTellsTheWatchers) {
  const BufferPtr buffer = Add("buffers/a", 16);
  buffer->replicas[0]->version = 5;
  ReplicaSync sync(*table_, turns_, *order_, watchers_);
  std::vector<ChangeKind> told;
  const auto watch = watchers_.Watch(
      {}, [&](ChangeKind kind, const auto&, const std::string&) { told.push_back(kind); },
      [] { return std::vector<BufferStatus>(); });
  EXPECT_EQ(ReasonOf(sync.Sync("buffers/a", 2, {}, "", {})), "BAD_REPLICA");
  ASSERT_OK_AND_ASSIGN(const BufferStatus status, sync.Sync("buffers/a", 0, {}, "", {}));
  EXPECT_TRUE(status.coherent);
  EXPECT_EQ(status.replicas[1].version, 5u);
  EXPECT_EQ(BytesOf(*buffer->replicas[1], 4), (std::vector<int>{0, 1, 2, 3}));
  watchers_.Flush();
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(leases_.CountOf("buffers/a").exclusive, 0) << "its own lease has ended with the turn";
}

TEST_F(ReplicaPartsTest, EventsOfSeveralDevicesAreWaitedForTogether) {
  std::map<int, std::vector<SharedEvent>> events;
  for (int d = 0; d < kDevices; ++d) {
    ASSERT_OK_AND_ASSIGN(const StreamRef stream, order_->Begin(d));
    ASSERT_THAT(devices_[static_cast<size_t>(d)]->Delay(stream, 5'000'000), IsOk());
    ASSERT_OK_AND_ASSIGN(const SharedEvent event, order_->Mark(d, stream));
    events[d].push_back(event);
  }
  const SharedEvent last = events[1][0];
  std::promise<bool> passed;
  order_->WhenAllPassed(std::move(events), [&](const absl::Status& status) {
    passed.set_value(status.ok() && last->Query().value());
  });
  EXPECT_TRUE(passed.get_future().get());
  bool none = false;
  order_->WhenAllPassed({}, [&](const absl::Status& status) { none = status.ok(); });
  EXPECT_TRUE(none) << "nothing to wait for";
}

}  // namespace
}  // namespace octavo::engine
