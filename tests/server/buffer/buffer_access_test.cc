// What makes, reads, writes and removes buffers: each is made alone, without a store.

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>

#include "server/buffer/buffer_maker.h"
#include "server/buffer/buffer_reads.h"
#include "server/buffer/buffer_remover.h"
#include "server/buffer/buffer_writes.h"
#include "server/buffer/op_runner.h"
#include "server/buffer/staging.h"
#include "tests/server/buffer/buffer_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

const Caller kCaller{.client = "me", .key = ""};

class BufferAccessTest : public testing::BufferPartsTest {
 protected:
  ExportStore Exports() {
    return ExportStore({.devices = devices_,
                        .ledger = &ledger_,
                        .volumes = &volumes_,
                        .clock = &clock_,
                        .server_id = "testtest"});
  }
  ReadEnvironment Environment() {
    return {.table = *table_, .order = *order_, .frames = frames_, .slow_reader_seconds = 30};
  }

  VolumeStore volumes_{&ledger_, &clock_};
};

TEST_F(BufferAccessTest, WhatIsBeingMadeCountsForTheQuota) {
  BufferMaker maker(*table_, *order_, &ledger_, {.server_id = "testtest", .quota_bytes = 100});
  const ArrayType type{.scalar = Scalar::kU8, .lanes = 1, .dims = {30}};
  const BufferSpec spec{.scalar = Scalar::kU8, .shape = {30}};
  ASSERT_OK_AND_ASSIGN(const BufferStatus made, maker.Create(type, spec, kCaller));
  EXPECT_EQ(made.replicas.size(), 2u);
  EXPECT_EQ(made.state, BufferState::kReady);
  EXPECT_EQ(ReasonOf(maker.Create(type, spec, kCaller)), "QUOTA");
  const ArrayType large{.scalar = Scalar::kU8, .lanes = 1, .dims = {51}};
  EXPECT_EQ(ReasonOf(maker.Make(large, {0, 1}, {.client = "nobody yet", .key = ""}, true)),
            "QUOTA");
  EXPECT_EQ(maker.owners_served(), 0u) << "a refused request leaves no entry";
  EXPECT_THAT(maker.Create(type, spec, {.client = "you", .key = ""}), IsOk());
  ASSERT_OK_AND_ASSIGN(const BufferPtr unlisted, maker.Make(type, {1}, kCaller, false));
  EXPECT_EQ(table_->List(kCaller).size(), 2u);
  EXPECT_EQ(unlisted->replicas[0]->state, BufferState::kUninitialized);
  order_->WaitForAll();
}

TEST_F(BufferAccessTest, ABufferThatCannotBeMadeLeavesNothing) {
  BufferMaker maker(*table_, *order_, &ledger_, {.server_id = "testtest", .quota_bytes = 0});
  const int64_t bytes = int64_t{40} << 20;
  const auto taken =
      ledger_
          .Reserve(1, "test", "", {{.kind = model::NeedKind::kBuffer, .bytes = bytes, .count = 1}},
                   nullptr)
          .value();
  const ArrayType type{.scalar = Scalar::kU8, .lanes = 1, .dims = {bytes}};
  EXPECT_EQ(ReasonOf(maker.Make(type, {0, 1}, kCaller, true)), "DEVICE_FULL");
  EXPECT_EQ(ledger_.UseOf(0).free(), int64_t{64} << 20);
  ledger_.Release(taken[0]);
}

TEST_F(BufferAccessTest, AShortReadIsCopiedWhenItIsOpened) {
  const BufferPtr buffer = Add("buffers/a", 16);
  BufferReads reads(Environment(), turns_, &volumes_);
  ASSERT_OK_AND_ASSIGN(const auto reader, reads.Open({.name = "buffers/a",
                                                      .which = BufferReadSpec::Which::kReplica,
                                                      .start = {4},
                                                      .count = {8}},
                                                     kCaller));
  EXPECT_EQ(leases_.CountOf("buffers/a").shared, 0) << "no writer waits for the client";
  ASSERT_OK_AND_ASSIGN(const Bytes first, reader->Next(6));
  EXPECT_EQ(std::string(static_cast<const char*>(first.data), 6), "\4\5\6\7\10\11");
  ASSERT_OK_AND_ASSIGN(const Bytes second, reader->Next(6));
  EXPECT_EQ(second.size, 2);
  EXPECT_EQ(reader->Next(6)->size, 0);
  buffer->replicas[1]->version = 2;
  EXPECT_EQ(ReasonOf(reads.Open({.name = "buffers/a"}, kCaller)), "INCOHERENT");
}

TEST_F(BufferAccessTest, ALongReadKeepsItsLeaseUntilItIsCutOff) {
  const BufferPtr buffer = Add("buffers/a", kStagedWhole + 16);
  BufferReads reads(Environment(), turns_, &volumes_);
  const BufferReadSpec spec{.name = "buffers/a", .which = BufferReadSpec::Which::kReplica};
  ASSERT_OK_AND_ASSIGN(const auto reader, reads.Open(spec, kCaller));
  ASSERT_OK_AND_ASSIGN(const Bytes piece, reader->Next(1 << 20));
  EXPECT_EQ(piece.size, 1 << 20);
  EXPECT_EQ(leases_.CountOf("buffers/a").shared, 1);
  reads.CutSlow(clock_.Now().monotonic_ns);
  EXPECT_THAT(reader->Next(1 << 20), IsOk());
  clock_.Advance(31);
  reads.CutSlow(clock_.Now().monotonic_ns);
  EXPECT_EQ(leases_.CountOf("buffers/a").shared, 0);
  EXPECT_EQ(ReasonOf(reader->Next(1 << 20)), "SLOW_READER");
}

// Whoever waits for the lease may ask the reader from the callback.
TEST_F(BufferAccessTest, TheEndOfALongReadCallsWaitersWithoutItsLock) {
  Add("buffers/a", 20 << 20);
  BufferReads reads(Environment(), turns_, &volumes_);
  for (const bool cut : {true, false}) {
    ASSERT_OK_AND_ASSIGN(const auto reader, reads.Open({.name = "buffers/a"}, kCaller));
    ASSERT_THAT(reader->Next(1 << 20), IsOk());
    std::string seen;
    std::string token;
    (void)leases_.Acquire({.resource = "buffers/a",
                           .mode = LeaseMode::kExclusive,
                           .holder = "a writer",
                           .wait_seconds = 200},
                          [&](absl::StatusOr<Lease> lease) {
                            ASSERT_THAT(lease, IsOk());
                            token = lease->token;
                            // On another thread, so that a held lock is seen, not deadlocked on.
                            auto other = std::async(std::launch::async, [&] {
                              const auto next = reader->Next(1 << 20);
                              return next.ok() ? "OK" : std::string(ReasonOf(next));
                            });
                            const bool done = other.wait_for(std::chrono::seconds(60)) ==
                                              std::future_status::ready;
                            seen = done ? other.get() : "the reader's lock is held";
                            if (!done) std::abort();  // the future would wait for ever
                          });
    if (cut) {
      clock_.Advance(31);
      reads.CutSlow(clock_.Now().monotonic_ns);
      EXPECT_EQ(seen, "SLOW_READER");
    } else {
      while (seen.empty()) ASSERT_GT(reader->Next(1 << 20)->size, 0);
      EXPECT_EQ(seen, "OK");
    }
    ASSERT_THAT(leases_.Release(token), IsOk());
  }
}

TEST_F(BufferAccessTest, AWriteThatBreaksOffBeforeItsEndChangesNothing) {
  const BufferPtr buffer = Add("buffers/a", 16);
  BufferWrites writes(*table_, turns_, *order_, watchers_, frames_);
  const BufferWriteSpec spec{.name = "buffers/a", .byte_offset = 8, .total_bytes = 4};
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, writes.Open(spec, kCaller));
    ASSERT_THAT(writer->Chunk({{"ab", 2}}), IsOk());
    EXPECT_EQ(leases_.CountOf("buffers/a").exclusive, 1);
    EXPECT_EQ(ReasonOf(writes.Open(spec, kCaller)), "LEASED");
  }
  EXPECT_EQ(leases_.CountOf("buffers/a").exclusive, 0);
  EXPECT_EQ(buffer->replicas[0]->version, 1u);
  ASSERT_OK_AND_ASSIGN(const auto writer, writes.Open(spec, kCaller));
  ASSERT_THAT(writer->Chunk({{"ab", 2}, {"cd", 2}}), IsOk());
  ASSERT_OK_AND_ASSIGN(const BufferStatus written, writer->Finish());
  EXPECT_EQ(written.replicas[1].version, 2u);
  EXPECT_EQ(BytesOf(*buffer->replicas[0], 13),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 'a', 'b', 'c', 'd', 12}));
}

TEST_F(BufferAccessTest, AnOperationComputesWhereItsInputsAre) {
  const BufferPtr buffer = Add("buffers/a", 16);
  buffer->replicas.pop_back();  // the input is on the first device only
  const BufferPtr out = Add("buffers/b", 16);
  BufferMaker maker(*table_, *order_, &ledger_, {.server_id = "testtest"});
  OpRunner runner(*table_, turns_, *order_, maker, &ledger_, &volumes_);
  ASSERT_OK_AND_ASSIGN(
      const BufferStatus status,
      runner.Run(
          runner.ProgramOf({.input = "buffers/a", .operations = {FlipOp{}}, .output = "buffers/b"}),
          kCaller));
  EXPECT_EQ(status.sequence, 1u);
  EXPECT_EQ(status.origin, "buffers/a");
  for (const auto& replica : out->replicas) {
    EXPECT_EQ(BytesOf(*replica, 3), (std::vector<int>{15, 14, 13})) << replica->device;
    EXPECT_EQ(replica->version, 2u);
  }
  EXPECT_EQ(table_->Count().forwarded_bytes, 16) << "the other device gets the result from there";
  ASSERT_OK_AND_ASSIGN(
      const BufferStatus made,
      runner.Run(runner.ProgramOf({.input = "buffers/a", .operations = {CopyOp{}}}), kCaller));
  EXPECT_EQ(made.replicas.size(), 1u);
  EXPECT_THAT(table_->Get(made.name, kCaller), IsOk());
  order_->WaitForAll();
}

TEST_F(BufferAccessTest, OverdueBuffersGoUnlessSomebodyUsesThem) {
  ExportStore exports = Exports();
  BufferReads reads(Environment(), turns_, &volumes_);
  BufferRemover remover(*table_, turns_, *order_, reads, watchers_, &exports);
  std::vector<std::pair<ChangeKind, std::string>> told;
  const auto watch = watchers_.Watch(
      {},
      [&](ChangeKind kind, const auto& status, const std::string&) {
        told.emplace_back(kind, status->name);
      },
      [] { return std::vector<BufferStatus>(); });
  for (const char* name : {"buffers/a", "buffers/b", "buffers/c"}) {
    const BufferPtr buffer = Add(name, 16);
    buffer->ttl_seconds = 100;
    MutexLock lock(table_->mutex());
    table_->Touch(*buffer);
  }
  const Lease lease =
      leases_.TryAcquire({.resource = "buffers/b", .mode = LeaseMode::kShared, .seconds = 0})
          .value();
  clock_.Advance(60);
  remover.Expire(clock_.Now().monotonic_ns);
  remover.Expire(clock_.Now().monotonic_ns);
  watchers_.Flush();
  EXPECT_EQ(told.size(), 3u) << "one warning for each";
  told.clear();
  ASSERT_THAT(remover.Destroy("buffers/c", "", "", kCaller, false), IsOk());
  clock_.Advance(41);
  remover.Expire(clock_.Now().monotonic_ns);
  using Told = std::vector<std::pair<ChangeKind, std::string>>;
  watchers_.Flush();
  EXPECT_EQ(told, (Told{{ChangeKind::kGone, "buffers/c"}, {ChangeKind::kGone, "buffers/a"}}));
  EXPECT_EQ(table_->List(kCaller).size(), 1u) << "the leased one waits";
  ASSERT_THAT(leases_.Release(lease.token), IsOk());
  EXPECT_EQ(ReasonOf(remover.Destroy("buffers/b", "77", "", kCaller, false)), "VERSION");
  remover.Expire(clock_.Now().monotonic_ns);
  EXPECT_TRUE(table_->List(kCaller).empty());
}

}  // namespace
}  // namespace octavo::engine
