// Writes to buffers and reads of them: every row of their error table, writes that break off, and
// readers that are too slow.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "server/model/checksum.h"
#include "tests/server/buffer/buffer_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::kBudget;
using testing::kMe;

class BufferIoTest : public testing::BufferStoreTest {};

TEST_P(BufferIoTest, WhatIsWrittenIsRead) {
  for (const std::vector<uint64_t>& shape :
       {std::vector<uint64_t>{50}, {50, 50}, {50, 50, 50}, {2, 50}}) {
    for (const uint64_t lanes : {1u, 2u}) {
      const BufferStatus made = Make(Scalar::kF32, shape, lanes);
      EXPECT_EQ(made.replicas.size(), devices());
      EXPECT_TRUE(made.coherent);
      const std::vector<float> values = Random(static_cast<size_t>(made.type.numbers()), 1);
      ASSERT_OK_AND_ASSIGN(const BufferStatus written, Write(made.name, values));
      EXPECT_TRUE(written.coherent);
      EXPECT_EQ(written.state, BufferState::kReady);
      EXPECT_GT(written.replicas[0].version, made.replicas[0].version);
      EXPECT_NE(written.etag, made.etag);
      for (uint32_t r = 0; r < devices(); ++r) {
        EXPECT_EQ(
            Read<float>({.name = made.name, .which = BufferReadSpec::Which::kReplica, .replica = r})
                .value(),
            values);
      }
      EXPECT_EQ(Read<float>({.name = made.name}).value(), values);
      ASSERT_OK_AND_ASSIGN(
          const auto stacked,
          Read<float>({.name = made.name, .which = BufferReadSpec::Which::kStacked}));
      ASSERT_EQ(stacked.size(), values.size() * devices());
      for (size_t i = 0; i < stacked.size(); ++i) ASSERT_EQ(stacked[i], values[i % values.size()]);
    }
  }
}

TEST_P(BufferIoTest, EveryElementTypeHasItsSize) {
  for (int s = 1; s <= kMostScalar; ++s) {
    const auto scalar = static_cast<Scalar>(s);
    for (uint64_t lanes = 1; lanes <= (IsComplex(scalar) ? 1 : 4); ++lanes) {
      const BufferStatus made = Make(scalar, {3, 5}, lanes);
      const auto bytes = static_cast<size_t>(15 * SizeOf(scalar) * static_cast<int64_t>(lanes));
      EXPECT_EQ(made.type.bytes(), static_cast<int64_t>(bytes));
      EXPECT_EQ(Read<uint8_t>({.name = made.name}).value(), std::vector<uint8_t>(bytes, 0))
          << "a new buffer is zero";
      std::vector<uint8_t> values(bytes);
      std::iota(values.begin(), values.end(), 1);
      ASSERT_THAT(Write(made.name, values,
                        {.has_type = true, .scalar = scalar, .lanes = lanes, .shape = {3, 5}}),
                  IsOk());
      EXPECT_EQ(Read<uint8_t>({.name = made.name}).value(), values);
      ASSERT_THAT(store_->Destroy(made.name, "", "", kMe), IsOk());
    }
  }
}

TEST_P(BufferIoTest, WritesAreCheckedAgainstTheBuffer) {
  // 8 bytes per element, 1600 in total.
  const BufferStatus buffer = Make(Scalar::kF32, {10, 20}, 2);
  const std::vector<float> values(400, 1);
  const auto open = [&](BufferWriteSpec spec) {
    spec.name = buffer.name;
    if (spec.total_bytes == 0) spec.total_bytes = 1600;
    return store_->OpenWrite(spec, kMe).status();
  };
  EXPECT_REFUSED(open({.all = false, .replica = devices()}), kOutOfRange, "BAD_REPLICA");
  EXPECT_REFUSED(open({.byte_offset = 8}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(open({.byte_offset = ~uint64_t{7}, .total_bytes = 16}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(store_->OpenWrite({.name = buffer.name}, kMe), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(open({.byte_offset = 4, .total_bytes = 8}), kInvalidArgument, "MISALIGNED");
  EXPECT_REFUSED(open({.byte_offset = 8, .total_bytes = 12}), kInvalidArgument, "MISALIGNED");
  EXPECT_REFUSED(open({.has_type = true, .scalar = Scalar::kI32, .lanes = 2}), kInvalidArgument,
                 "TYPE_MISMATCH");
  EXPECT_REFUSED(open({.has_type = true, .scalar = Scalar::kF32, .lanes = 1}), kInvalidArgument,
                 "TYPE_MISMATCH");
  EXPECT_THAT(open({.has_type = true, .scalar = Scalar::kI32}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "header.type: is i32; the buffer is f32[10, 20]"));
  EXPECT_REFUSED(open({.shape = {20, 10}}), kInvalidArgument, "SHAPE_MISMATCH");
  EXPECT_REFUSED(open({.shape = {10}}), kInvalidArgument, "SHAPE_MISMATCH");
  EXPECT_REFUSED(open({.if_version = 77}), kAborted, "VERSION");
  EXPECT_REFUSED(open({.lease_token = "no such token"}), kFailedPrecondition, "LEASE_LOST");
  EXPECT_REFUSED(store_->OpenWrite({.name = "buffers/none", .total_bytes = 8}, kMe), kNotFound,
                 "NO_BUFFER");
  EXPECT_REFUSED(store_->OpenWrite({.name = "volumes/some", .total_bytes = 8}, kMe),
                 kFailedPrecondition, "SEALED");
  // The stream alone.
  {
    auto writer = store_->OpenWrite({.name = buffer.name, .total_bytes = 16}, kMe).value();
    EXPECT_REFUSED(writer->Chunk({{reinterpret_cast<const char*>(values.data()), 24}}),
                   kInvalidArgument, "PROTOCOL");
  }
  {
    auto writer = store_->OpenWrite({.name = buffer.name, .total_bytes = 1600}, kMe).value();
    const std::vector<char> huge(BufferWriter::kMostChunk + 1);
    EXPECT_REFUSED(writer->Chunk({{huge.data(), huge.size()}}), kInvalidArgument, "PROTOCOL");
    ASSERT_THAT(writer->Chunk({{reinterpret_cast<const char*>(values.data()), 100}}), IsOk());
    EXPECT_REFUSED(writer->Finish(), kInvalidArgument, "SHORT_STREAM");
  }
  EXPECT_REFUSED(Write(buffer.name, values, {.has_crc = true, .crc32c = 1}), kDataLoss, "CHECKSUM");
  const BufferStatus now = store_->Get(buffer.name, kMe).value();
  EXPECT_EQ(now.state, BufferState::kReady);
  EXPECT_EQ(now.replicas[0].version, buffer.replicas[0].version);
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), std::vector<float>(400, 0))
      << "none of them changed anything";
  EXPECT_THAT(Write(buffer.name, values,
                    {.has_crc = true, .crc32c = Crc32c(values.data(), 1600, 0), .if_version = 1}),
              IsOk());
}

TEST_P(BufferIoTest, ReadsAreCheckedAgainstTheBuffer) {
  const BufferStatus buffer = Make(Scalar::kF32, {4, 5, 6});
  EXPECT_REFUSED(
      Read<float>(
          {.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = devices()}),
      kOutOfRange, "BAD_REPLICA");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .start = {4, 0, 0}}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .start = {1, 0, 0}, .count = {4, 1, 1}}),
                 kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .count = {int64_t{1} << 62, 1, 1}}), kOutOfRange,
                 "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .count = {-1, 1, 1}}), kOutOfRange, "BAD_RANGE");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .start = {1}}), kInvalidArgument, "BAD_FIELD");
  EXPECT_REFUSED(Read<float>({.name = buffer.name, .if_version = 9}), kAborted, "VERSION");
  EXPECT_REFUSED(Read<float>({.name = "volumes/none"}), kNotFound, "NO_VOLUME");
  const BufferStatus raw = Make(Scalar::kF32, {7}, 1, {}, true);
  EXPECT_EQ(raw.state, BufferState::kUninitialized);
  EXPECT_FALSE(raw.coherent);
  EXPECT_REFUSED(Read<float>({.name = raw.name}), kFailedPrecondition, "UNINITIALIZED");
  EXPECT_EQ(Read<float>({.name = raw.name, .allow_uninitialized = true}).value(),
            std::vector<float>(7, 0));
}

TEST_P(BufferIoTest, BoxesAndRanges) {
  const BufferStatus buffer = Make(Scalar::kI32, {4, 5, 6});
  std::vector<int32_t> values(120);
  std::iota(values.begin(), values.end(), 0);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  ASSERT_OK_AND_ASSIGN(
      const auto box, Read<int32_t>({.name = buffer.name, .start = {1, 2, 3}, .count = {2, 3, 2}}));
  size_t i = 0;
  for (int y = 1; y < 3; ++y) {
    for (int x = 2; x < 5; ++x) {
      for (int z = 3; z < 5; ++z) EXPECT_EQ(box[i++], (y * 5 + x) * 6 + z);
    }
  }
  ASSERT_THAT(Write(buffer.name, std::vector<int32_t>{-1, -2}, {.byte_offset = 40}), IsOk());
  values[10] = -1;
  values[11] = -2;
  EXPECT_EQ(Read<int32_t>({.name = buffer.name}).value(), values);
}

TEST_P(BufferIoTest, ABroadcastIsTheSameOnEveryDevice) {
  // The array is longer than a staged write: the store uploads its blocks once and copies them from
  // device to device.
  const size_t count = (20 << 20) / 4 + 12345;
  const BufferStatus buffer = Make(Scalar::kF32, {count});
  const std::vector<float> values = Random(count, 3);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  for (uint32_t r = 0; r < devices(); ++r) {
    ASSERT_TRUE(
        Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = r})
            .value() == values)
        << r;
  }
  const auto totals = store_->Count();
  EXPECT_EQ(totals.uploaded_bytes, static_cast<int64_t>(4 * count));
  EXPECT_EQ(totals.forwarded_bytes, static_cast<int64_t>(4 * count) * (devices() - 1));
}

TEST_P(BufferIoTest, AWriteThatBreaksOffIsSeenAsSuch) {
  // T14: the stream breaks at each message. Short writes are all or nothing. After a broken long
  // write the buffer has its old contents or is PARTIAL, never a readable mixture.
  for (const size_t mebibytes : {3, 18}) {
    const size_t count = (mebibytes << 20) / 4;
    const BufferStatus buffer = Make(Scalar::kF32, {count});
    const std::vector<float> old(count, 1), fresh(count, 2);
    for (size_t chunks = 0; chunks <= mebibytes; chunks += mebibytes > 16 ? 3 : 1) {
      ASSERT_THAT(Write(buffer.name, old), IsOk());
      const BufferStatus before = store_->Get(buffer.name, kMe).value();
      {
        auto writer =
            store_->OpenWrite({.name = buffer.name, .total_bytes = 4 * count}, kMe).value();
        for (size_t i = 0; i < chunks; ++i) {
          ASSERT_THAT(
              writer->Chunk({{reinterpret_cast<const char*>(fresh.data()) + (i << 20), 1 << 20}}),
              IsOk());
        }
        EXPECT_REFUSED(Read<float>({.name = buffer.name}), kAborted, "LEASED");
      }  // the client disconnects
      const BufferStatus after = store_->Get(buffer.name, kMe).value();
      EXPECT_EQ(after.replicas[0].version, before.replicas[0].version);
      if (after.state == BufferState::kReady) {
        ASSERT_TRUE(Read<float>({.name = buffer.name}).value() == old) << chunks;
      } else {
        EXPECT_EQ(after.state, BufferState::kPartial);
        EXPECT_GT(mebibytes, 16u) << "short writes are all or nothing";
        EXPECT_REFUSED(Read<float>({.name = buffer.name}), kFailedPrecondition, "PARTIAL");
        EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CopyOp{}}}, kMe),
                       kFailedPrecondition, "PARTIAL");
        // A partial write does not complete the buffer.
        ASSERT_THAT(Write(buffer.name, std::vector<float>{5}), IsOk());
        EXPECT_REFUSED(Read<float>({.name = buffer.name}), kFailedPrecondition, "PARTIAL");
      }
    }
    ASSERT_THAT(Write(buffer.name, fresh), IsOk());
    ASSERT_TRUE(Read<float>({.name = buffer.name}).value() == fresh);
    ASSERT_THAT(store_->Destroy(buffer.name, "", "", kMe), IsOk());
  }
  if (devices() < 2) return;
  // One replica is complete: a sync from it completes the other.
  const size_t count = 5 << 20;
  const BufferStatus buffer = Make(Scalar::kF32, {count}, 1, {0, 1});
  const std::vector<float> half(1 << 18, 2);
  {
    auto writer =
        store_
            ->OpenWrite({.name = buffer.name, .all = false, .replica = 1, .total_bytes = 4 * count},
                        kMe)
            .value();
    for (int i = 0; i < 8; ++i)
      ASSERT_THAT(writer->Chunk({{reinterpret_cast<const char*>(half.data()), 1 << 20}}), IsOk());
  }
  EXPECT_EQ(store_->Get(buffer.name, kMe)->state, BufferState::kPartial);
  EXPECT_REFUSED(store_->Sync(buffer.name, 1, {}, "", kMe), kFailedPrecondition, "PARTIAL");
  EXPECT_TRUE(store_->Sync(buffer.name, 0, {}, "", kMe)->coherent);
  ASSERT_TRUE(
      Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = 1})
          .value() == std::vector<float>(count, 0));
}

TEST_P(BufferIoTest, LongReadsHoldTheBufferUntilTheyAreThroughOrTooSlow) {
  const size_t count = (20 << 20) / 4;
  const BufferStatus buffer = Make(Scalar::kF32, {count / 1024, 1024});
  const std::vector<float> values = Random(count, 4);
  ASSERT_THAT(Write(buffer.name, values), IsOk());
  ASSERT_TRUE(Read<float>({.name = buffer.name}, 64 << 10).value() == values);
  ASSERT_TRUE(Read<float>({.name = buffer.name}, 1000).value() == values) << "parts of rows";
  auto reader = store_->OpenRead({.name = buffer.name}, kMe).value();
  ASSERT_THAT(reader->Next(1 << 20), IsOk());
  EXPECT_EQ(store_->Get(buffer.name, kMe)->shared_leases, 1);
  EXPECT_REFUSED(Write(buffer.name, values), kAborted, "LEASED");
  EXPECT_REFUSED(store_->Destroy(buffer.name, "", "", kMe), kAborted, "LEASED");
  EXPECT_REFUSED(
      store_->Apply({.input = buffer.name, .operations = {FlipOp{}}, .output = buffer.name}, kMe),
      kAborted, "LEASED");
  EXPECT_TRUE(Read<float>({.name = buffer.name}).value() == values) << "readers share";
  clock_.Advance(31);
  store_->Housekeep();
  EXPECT_REFUSED(reader->Next(1 << 20), kAborted, "SLOW_READER");
  EXPECT_THAT(Write(buffer.name, values), IsOk());
}

// -- a client's own lease ends while the client reads or writes under it

TEST_P(BufferIoTest, AReadThatLostItsLeaseNeverMixesTwoVersions) {
  const size_t count = (20 << 20) / 4;
  for (const bool whole : {true, false}) {
    const BufferStatus buffer = Make(Scalar::kF32, {count}, 1, {0});
    const std::vector<float> old(count, 1), fresh(count, 2);
    ASSERT_THAT(Write(buffer.name, old), IsOk());
    const Lease lease =
        leases_.TryAcquire({.resource = buffer.name, .mode = LeaseMode::kShared, .seconds = 5})
            .value();
    auto reader = store_->OpenRead({.name = buffer.name, .lease_token = lease.token}, kMe).value();
    ASSERT_THAT(reader->Next(1 << 20), IsOk());
    clock_.Advance(6);
    if (whole) {
      ASSERT_THAT(Write(buffer.name, fresh), IsOk());
    } else {  // broken off: another state of the same version
      auto writer = store_->OpenWrite({.name = buffer.name, .total_bytes = 4 * count}, kMe).value();
      for (int i = 0; i < 17; ++i)
        ASSERT_THAT(writer->Chunk({{reinterpret_cast<const char*>(fresh.data()), 1 << 20}}),
                    IsOk());
    }
    absl::StatusOr<Bytes> piece = Bytes{};
    for (int i = 0; i < 20 && (piece = reader->Next(1 << 20)).ok(); ++i) {
      ASSERT_EQ(static_cast<const float*>(piece->data)[0], 1) << "piece " << i;
    }
    EXPECT_REFUSED(piece, kFailedPrecondition, "LEASE_LOST");
    ASSERT_THAT(store_->Destroy(buffer.name, "", "", kMe), IsOk());
  }
}

TEST_P(BufferIoTest, WhatIsBeingWrittenIsNotMovedNorSynced) {
  const size_t count = (20 << 20) / 4;
  const auto [name, what] = MakeMovable({count});
  const std::vector<float> values(1 << 18, 2);
  const auto begin = [&](const std::string& buffer, uint32_t replica) {
    const Lease lease =
        leases_.TryAcquire({.resource = buffer, .mode = LeaseMode::kExclusive, .seconds = 5})
            .value();
    auto writer = store_
                      ->OpenWrite({.name = buffer,
                                   .all = false,
                                   .replica = replica,
                                   .total_bytes = 4 * count,
                                   .lease_token = lease.token},
                                  kMe)
                      .value();
    for (int i = 0; i < 8; ++i)
      EXPECT_THAT(writer->Chunk({{reinterpret_cast<const char*>(values.data()), 1 << 20}}), IsOk());
    return writer;
  };
  auto writer = begin(name, 0);
  clock_.Advance(6);
  EXPECT_THAT(store_->Relocate(what), IsError(absl::StatusCode::kAborted, "is being written"));
  for (int i = 0; i < 12; ++i)
    ASSERT_THAT(writer->Chunk({{reinterpret_cast<const char*>(values.data()), 1 << 20}}), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());
  ASSERT_TRUE(Read<float>({.name = name}).value() == std::vector<float>(count, 2));
  EXPECT_THAT(store_->Relocate(what), IsOk());
  ASSERT_TRUE(Read<float>({.name = name}).value() == std::vector<float>(count, 2));
  if (devices() < 2) return;
  const BufferStatus two = Make(Scalar::kF32, {count}, 1, {0, 1});
  writer = begin(two.name, 1);
  clock_.Advance(6);
  EXPECT_REFUSED(store_->Sync(two.name, 0, {}, "", kMe), kAborted, "LEASED");
}

INSTANTIATE_TEST_SUITE_P(Backends, BufferIoTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
